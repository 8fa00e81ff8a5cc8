// As much of LLVM's names as the C++ files of cubecl-llvm need to compile. The functions end the process.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>

struct LLVMOpaqueModule;
using LLVMModuleRef = LLVMOpaqueModule *;

namespace llvm {
using StringRef = std::string_view;
struct Context;
struct Error;
struct Module {
  Context &getContext() { std::abort(); }
};
struct MemoryBufferRef;
struct MemoryBuffer {
  static std::unique_ptr<MemoryBuffer> getMemBuffer(StringRef data, StringRef name, bool terminated) { std::abort(); }
  const MemoryBufferRef &getMemBufferRef() { std::abort(); }
};
template <class T> struct Expected {
  explicit operator bool() const { std::abort(); }
  T &operator*() { std::abort(); }
  Error &takeError() { std::abort(); }
};
struct Linker {
  enum Flags { LinkOnlyNeeded };
  static bool linkModules(Module &into, std::unique_ptr<Module> from, Flags flags) { std::abort(); }
};
inline Module *unwrap(LLVMModuleRef module) { std::abort(); }
inline Expected<std::unique_ptr<Module>> parseBitcodeFile(const MemoryBufferRef &buffer, Context &context) {
  std::abort();
}
inline std::string toString(Error &error) { std::abort(); }

namespace cl {
struct Option {
  bool addOccurrence(unsigned position, StringRef name, StringRef value) { std::abort(); }
};
inline std::map<StringRef, Option *> &getRegisteredOptions() { std::abort(); }
} // namespace cl
} // namespace llvm
