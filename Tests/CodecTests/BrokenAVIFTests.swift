import Codec
import Jobs
import TestSupport
import Testing

@Suite("An incomplete or broken AVIF")
struct BrokenAVIFTests {
  @Test(
    "an AVIF that is cut anywhere is refused",
    arguments: ["small.avif", "alpha.avif", "animated.avif", "turned-6.avif"])
  func cutShort(name: String) {
    let whole = Fixtures.image(name)
    for count in 1..<whole.count {
      let pieces = count % 3 == 0 ? 1 : count % 3 == 1 ? 50 : .max
      let decoding = Decoding(Array(whole.prefix(count)), pieces: pieces)
      // Four bytes are a length and could begin any format.
      if count > 4 { #expect(decoding.error == .cutShort, "\(count) bytes: \(decoding.result)") }
      #expect(decoding.description == nil)
    }
  }

  @Test("an AVIF with broken AV1 data is broken")
  func data() throws {
    let whole = Fixtures.image("small.avif")
    let box = try #require(
      whole.indices.first { whole[$0...].starts(with: "mdat".utf8) })
    for byte in [0, 0x55, 0xFF] as [UInt8] {
      let count = whole.count - box - 4
      let blank = whole.dropLast(count) + [UInt8](repeating: byte, count: count)
      #expect(Decoding(Array(blank)).isBroken, "\(Decoding(Array(blank)).result)")
    }
  }

  @Test("an AVIF without boxes is cut short, or exceeds the limit of bytes to wait for")
  func noBoxes() {
    let start = Array(Fixtures.image("small.avif").prefix(32))
    #expect(Decoding(start).error == .cutShort)
    let free = [0, 0x10, 0, 0] + Array("free".utf8)
    let long = start + free + [UInt8](repeating: 0, count: 0x10_0000 - 8)
    #expect(Decoding(long, pieces: 65_536).error != nil)
    let limits = DecodeLimits(maxMemory: 500_000)
    #expect(
      Decoding(long, pieces: 65_536, limits: limits).error
        == .tooMuchMemory(bytes: 500_000, limit: 500_000))
  }

  @Test("an AVIF is refused by its header if AV1 would need too much memory")
  func memory() {
    let whole = Fixtures.image("deep.avif")
    let decoding = Decoding(whole, limits: DecodeLimits(maxMemory: 4 << 20))
    guard case .tooMuchMemory(let bytes, 4_194_304) = decoding.error else {
      Issue.record("\(decoding.result)")
      return
    }
    #expect(bytes > 4 << 20)
  }
}
