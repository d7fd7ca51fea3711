// Renders [{template, context}] from standard input with @huggingface/jinja
// of the folder given first; the second argument is the time in Unix seconds.
// Used by chat_template_expectations.py.
import {createRequire} from 'node:module';
import path from 'node:path';
import {readFileSync} from 'node:fs';

process.env.TZ = 'UTC';
const [folder, seconds] = process.argv.slice(2);
const RealDate = Date;
globalThis.Date = class extends RealDate {
  constructor(...args) {
    super(...(args.length > 0 ? args : [Number(seconds) * 1000]));
  }
};
const require = createRequire(path.resolve(folder, 'package.json'));
const {Template} = require('@huggingface/jinja');

const results = JSON.parse(readFileSync(0)).map(({template, context}) => {
  try {
    return {expected: new Template(template).render(context)};
  } catch (error) {
    return {error: error.message};
  }
});
console.log(JSON.stringify(results));
