find_package(nlohmann_json REQUIRED)
find_library(UTF8PROC_LIBRARY utf8proc REQUIRED)

tidepool_library(model_chat_template
  SOURCES chat_template.cc jinja_evaluator.cc
          jinja_evaluator_expressions.cc jinja_format.cc
          jinja_functions.cc jinja_json.cc jinja_lexer.cc jinja_methods.cc
          jinja_number_filters.cc jinja_object.cc jinja_operators.cc
          jinja_parser.cc jinja_parser_expressions.cc jinja_sequence_filters.cc jinja_tests.cc
          jinja_text.cc jinja_text_filters.cc jinja_value.cc
  HEADERS chat_template.h jinja_ast.h jinja_builtins.h jinja_evaluator.h
          jinja_evaluator_internal.h jinja_parser_internal.h
          jinja_json.h jinja_lexer.h jinja_object.h jinja_parser.h jinja_text.h
          jinja_value.h
  DEPS tidepool::model_files nlohmann_json::nlohmann_json ${UTF8PROC_LIBRARY})
tidepool_test(model_chat_template_test SOURCES chat_template_test.cc
  DEPS tidepool::model_chat_template)
tidepool_test(model_chat_template_limits_test
  SOURCES chat_template_limits_test.cc DEPS tidepool::model_chat_template)

if(TIDEPOOL_FUZZERS)
  # Without coverage of the interpreter itself the fuzzer would search blindly.
  target_compile_options(tidepool_model_chat_template PRIVATE
    -fsanitize=fuzzer-no-link)
endif()
tidepool_fuzz(chat_template_fuzz SOURCES chat_template_fuzz.cc
  DEPS tidepool::model_chat_template CORPUS testdata/chat_template/fuzz)
