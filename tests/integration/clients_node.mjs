// node clients_node.mjs PATH_OF_THE_OPENAI_PACKAGE URL: the official Node
// client against a fleet that serves `demo` behind the key `k3y`.
import assert from 'node:assert/strict';
import {pathToFileURL} from 'node:url';

const [packagePath, url] = process.argv.slice(2);
const {default: OpenAI} = await import(pathToFileURL(packagePath).href);
const client = new OpenAI({baseURL: `${url}/v1`, apiKey: 'k3y', maxRetries: 0});

const ask = {model: 'demo', prompt: 'Once upon a time', max_tokens: 30, temperature: 0};
const whole = await client.completions.create(ask);
let text = '';
for await (const chunk of await client.completions.create({...ask, stream: true}))
  for (const choice of chunk.choices) text += choice.text;
assert.equal(text, whole.choices[0].text);

const chat = {
  model: 'demo', max_tokens: 30, temperature: 0,
  messages: [{role: 'user', content: 'Tell me a story about a dragon.'}],
};
const wholeChat = await client.chat.completions.create(chat);
text = '';
for await (const chunk of await client.chat.completions.create({...chat, stream: true}))
  for (const choice of chunk.choices) text += choice.delta.content ?? '';
assert.equal(text, wholeChat.choices[0].message.content);

await assert.rejects(client.completions.create({...ask, model: 'gpt-x'}), OpenAI.NotFoundError);
await assert.rejects(client.completions.create({...ask, top_p: 7}),
  (error) => error instanceof OpenAI.BadRequestError && error.param === 'top_p');
await assert.rejects(new OpenAI({baseURL: `${url}/v1`, apiKey: 'wrong', maxRetries: 0}).models.list(),
  OpenAI.AuthenticationError);

const stream = await client.completions.create({...ask, max_tokens: 1900, stream: true, ignore_eos: true});
for await (const chunk of stream) {
  assert.ok(chunk.id);
  stream.controller.abort();
  break;
}
console.log('ok');
