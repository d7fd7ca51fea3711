# Text to tokens and back.
tidepool_library(model_tokenizer
  HEADERS detokenizer.h tokenizer.h
  DEPS tidepool::base)
