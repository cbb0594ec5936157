internal import Glibc

/// AddressSanitizer or ThreadSanitizer, where the tests were built with one.
///
/// Both map terabytes and ask the kernel for what decoders may not: no decoder starts with them under its limit of
/// addresses and behind its filter.
public enum Sanitizer {
  /// Whether one is there.
  public static let isHere = ["__asan_init", "__tsan_init"].contains { (name: String) in
    dlsym(nil, name) != nil
  }
}
