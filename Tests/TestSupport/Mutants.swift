/// SplitMix64: a random number generator with the same numbers in every run.
package struct SeededRandom: RandomNumberGenerator {
  private var state: UInt64

  package init(_ seed: UInt64) { state = seed }

  /// A generator whose seed is a name.
  package init(for name: String) {
    self.init(UInt64(name.utf8.reduce(7) { $0 &* 31 &+ UInt64($1) }))
  }

  package mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var value = state
    value = (value ^ value >> 30) &* 0xBF58_476D_1CE4_E5B9
    value = (value ^ value >> 27) &* 0x94D0_49BB_1331_11EB
    return value ^ value >> 31
  }

  /// The bytes with one to six changes: bytes replaced, removed or repeated.
  package mutating func mutant(of seed: [UInt8]) -> [UInt8] {
    var bytes = seed
    for _ in 0..<Int.random(in: 1...6, using: &self) {
      let index = Int.random(in: 2..<bytes.count, using: &self)
      switch Int.random(in: 0..<5, using: &self) {
      case 0: bytes[index] = UInt8.random(in: 0...255, using: &self)
      case 1: bytes[index] ^= 1 << Int.random(in: 0..<8, using: &self)
      case 2: bytes[index] = 0xFF
      case 3: bytes.removeSubrange(index..<min(index + 5, bytes.count - 1))
      default: bytes.insert(contentsOf: bytes.prefix(index).suffix(40), at: index)
      }
    }
    return bytes
  }
}
