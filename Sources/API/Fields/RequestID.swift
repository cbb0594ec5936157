internal import Synchronization

/// Creates request IDs, which connect a client's report with the log.
final class RequestIDs: Sendable {
  private let counter: Atomic<UInt64>

  init() { counter = Atomic(UInt64.random(in: 0 ... .max)) }

  /// The client's own ID if it has 1 to 128 visible ASCII characters, else a new one.
  func name(_ given: String?) -> String {
    if let given, 1...128 ~= given.utf8.count, given.utf8.allSatisfy({ 0x21...0x7E ~= $0 }) {
      return given
    }
    return next()
  }

  /// A new ID of 13 characters, which a `String` stores without allocating.
  func next() -> String {
    var word = Self.mixed(counter.wrappingAdd(0x9E37_79B9_7F4A_7C15, ordering: .relaxed).newValue)
    return String(unsafeUninitializedCapacity: 13) { buffer in
      for place in 0..<13 {
        let digit = UInt8(word & 31)
        buffer[place] = digit < 10 ? UInt8(ascii: "0") + digit : UInt8(ascii: "a") + digit - 10
        word >>= 5
      }
      return 13
    }
  }

  /// The finalizer of SplitMix64. It is a bijection, so a process never repeats an ID.
  private static func mixed(_ word: UInt64) -> UInt64 {
    var word = word
    word = (word ^ (word >> 30)) &* 0xBF58_476D_1CE4_E5B9
    word = (word ^ (word >> 27)) &* 0x94D0_49BB_1331_11EB
    return word ^ (word >> 31)
  }
}
