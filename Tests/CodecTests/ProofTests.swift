import Codec
import Jobs
import TestSupport
import Testing

/// Checks what `docs/formats.md` says about successful decodes, whether pixels are requested or not.
@Suite("What a successful decode proves")
struct ProofTests {
  static let sound = Fixtures.known.map(\.name).filter { !$0.hasPrefix("flat") }

  private static func isTaken(_ decoding: Decoding) -> Bool { (try? decoding.result.get()) != nil }

  /// Variants that need every pixel, and a few pixels.
  private static func wanted(by name: String) -> [Variant] {
    let image = Fixtures.known.first { $0.name == name }?.description
    return [Variant(.png), Variant(.png, max(1, (image?.width ?? 1) / 5))]
  }

  @Test("decoding accepts the same files with and without variants", arguments: sound)
  func same(name: String) {
    var random = SeededRandom(for: name)
    let seed = Fixtures.image(name)
    let limits = DecodeLimits(maxPixels: 1 << 20, maxDimension: 4_096)
    let wanted = Self.wanted(by: name)
    #expect(Self.isTaken(Decoding(seed, limits: limits, variants: wanted)))
    for number in 0..<30 {
      let cut = Array(seed.prefix((number + 1) * seed.count / 31))
      let mutant = number % 3 == 0 ? cut : random.mutant(of: seed)
      let proof = Decoding(mutant, limits: limits)
      let pixels = Decoding(mutant, limits: limits, variants: wanted)
      #expect(Self.isTaken(proof) == Self.isTaken(pixels), "\(number): \(proof.result)")
      if Self.isTaken(proof) { #expect(proof.description == pixels.description) }
    }
  }

  @Test("decoding gives the same result for a JPEG marker without a valid length")
  func lengthless() {
    for marker in [0xE0, 0xE1, 0xE2, 0xED, 0xFE] as [UInt8] {
      for length in [0, 1] as [UInt8] {
        var jpeg = JPEGFixture(Fixtures.jpeg)
        jpeg.insert([0xFF, marker, 0, length])
        for file in [
          jpeg.bytes, Array(Fixtures.jpeg.dropLast(2)) + [0xFF, marker, 0, length, 0xFF, 0xD9],
        ] {
          let proof = Decoding(file)
          let pixels = Decoding(file, variants: [Variant(.png)])
          #expect(Self.isTaken(proof) == Self.isTaken(pixels), "\(marker): \(pixels.result)")
        }
      }
    }
  }

  @Test("decoding gives the same result for a JPEG that ends within a late marker")
  func markers() {
    for marker in [0xE0, 0xE1, 0xE2, 0xED, 0xFE] as [UInt8] {
      let file = Array(Fixtures.jpeg.dropLast(2)) + [0xFF, marker, 0x40, 0, 1, 2, 3]
      let proof = Decoding(file)
      let pixels = Decoding(file, variants: [Variant(.png)])
      #expect(Self.isTaken(proof) == Self.isTaken(pixels), "\(marker): \(pixels.result)")
    }
  }

  @Test("decoding fails if a part of the file is missing, in every format", arguments: sound)
  func cut(name: String) {
    let seed = Fixtures.image(name)
    // Beyond this, the default image of an animated PNG is complete.
    for part in name == "animated.png" ? [1, 9, 40] : [1, 9, 40, 70] {
      let decoding = Decoding(Array(seed.prefix(max(1, part * seed.count / 100))))
      #expect(!Self.isTaken(decoding), "\(part) %: \(decoding.result)")
    }
  }
}
