internal import Foundation
internal import Glibc

/// AddressSanitizer or ThreadSanitizer, if the tests were built with one.
package enum Sanitizer {
  /// Whether the tests were built with a sanitizer.
  package static let isHere = ["__asan_init", "__tsan_init"].contains { (name: String) in
    dlsym(nil, name) != nil
  }

  /// Environment variables that a child process with its own environment needs for the sanitizer: its options, and the path of
  /// its symbolizer. Empty without a sanitizer.
  package static let environment: [String: String] =
    isHere
    ? ProcessInfo.processInfo.environment.filter {
      ["ASAN_OPTIONS", "PATH", "TSAN_OPTIONS"].contains($0.key)
    } : [:]
}
