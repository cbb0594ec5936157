internal import Glibc

/// AddressSanitizer or ThreadSanitizer, where the tests were built with one.
public enum Sanitizer {
  /// Whether one is there.
  public static let isHere = ["__asan_init", "__tsan_init"].contains { (name: String) in
    dlsym(nil, name) != nil
  }
}
