//! Nothing is here: the examples are the numbered files beside this folder. See the README.
