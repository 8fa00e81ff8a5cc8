#include "llvm-c/Core.h"
