internal import Foundation
internal import Glibc

/// AddressSanitizer or ThreadSanitizer, where the tests were built with one.
public enum Sanitizer {
  /// Whether one is there.
  public static let isHere = ["__asan_init", "__tsan_init"].contains { (name: String) in
    dlsym(nil, name) != nil
  }

  /// What a program that has no other environment needs of this one's beside it: what it passes over, and the way to what
  /// tells the names that this goes by. Empty where none is there.
  public static let environment: [String: String] =
    isHere
    ? ProcessInfo.processInfo.environment.filter {
      ["ASAN_OPTIONS", "PATH", "TSAN_OPTIONS"].contains($0.key)
    } : [:]
}
