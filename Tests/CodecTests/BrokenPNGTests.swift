import Codec
import Jobs
import TestSupport
import Testing

@Suite("An incomplete or broken PNG")
struct BrokenPNGTests {
  static let sample = PNGFixture(width: 9, height: 5)

  /// The files below end with IDAT and IEND.
  private static let endCount = 12

  private static let lateChecksum = CodecError.broken(
    format: .png, detail: "the image data ends before its checksum")

  @Test(
    "a PNG is cut short wherever its image data is cut",
    arguments: ["small.png", "mono.png", "palette-2bit.png"])
  func cutShort(name: String) throws {
    let whole = Fixtures.image(name)
    let expected = try #require(Decoding(whole).description)
    let dataEnd = whole.count - Self.endCount
    for count in 1..<whole.count {
      for pieces in [1, 100, .max] {
        let decoding = Decoding(Array(whole.prefix(count)), pieces: pieces)
        if count >= dataEnd {
          #expect(decoding.description == expected, "\(count) bytes: \(decoding.result)")
        } else if count < dataEnd - 12 {
          #expect(decoding.error == .cutShort, "\(count) bytes: \(decoding.result)")
        } else {
          // The last rows may be complete, but not both checksums: four bytes of zlib's and four of the chunk's.
          let errors = [CodecError.cutShort, Self.lateChecksum]
          #expect(decoding.error.map(errors.contains) == true, "\(count): \(decoding.result)")
          if count >= dataEnd - 8 { #expect(decoding.error == Self.lateChecksum, "\(count)") }
        }
      }
    }
  }

  @Test("a PNG without IEND is complete if its image data is complete", arguments: [false, true])
  func noEnd(isInterlaced: Bool) throws {
    var png = PNGFixture(width: 9, height: 5)
    png.isInterlaced = isInterlaced
    let expected = try #require(Decoding(png.bytes).description)
    let stream = PNGFixture.zlib(png.rows)
    let text = PNGFixture.chunk("tEXt", [65, 0, 65])
    let whole = png.start + PNGFixture.chunk("IDAT", stream)
    for rest in [[], text, Array(text.dropLast()), Array(text.prefix(3)), text + [0, 0]] {
      for pieces in [1, .max] {
        #expect(Decoding(whole + rest, pieces: pieces).description == expected, "\(rest)")
      }
    }
    // Rows, or zlib's checksum, are missing with the last chunk.
    for lost in 1..<stream.count {
      let cut = png.start + PNGFixture.chunk("IDAT", Array(stream.dropLast(lost)))
      for pieces in [1, .max] {
        let decoding = Decoding(cut, pieces: pieces)
        let hasRows = lost <= 4
        #expect(
          hasRows ? decoding.isBroken : decoding.error == .cutShort, "\(lost): \(decoding.result)")
      }
    }
    #expect(Decoding(png.start).error == .cutShort)
    #expect(Decoding(png.start + text).error == .cutShort)
    // A wrong checksum of IEND is always an error.
    let end = Array(png.end.dropLast(4))
    #expect(Decoding(whole + end + [1, 2, 3, 4]).isBroken)
    #expect(Decoding(whole + end + [1, 2, 3]).isBroken)
  }

  /// Rows of noise that repeat after 20 kB, so that the window must be 32 KiB. The zlib header declares 256 bytes.
  private static func smallWindow(_ rows: [UInt8]) -> [UInt8] {
    var stream = Compressed.deflate(rows)
    #expect(stream[0] == 0x78 && stream.count < rows.count * 2 / 3)
    // FCHECK makes both bytes a multiple of 31 (RFC 1950, section 2.2).
    stream[0] = 0x08
    let flags = Int(stream[1] & 0xE0)
    stream[1] = UInt8(flags + 31 - (0x08 * 256 + flags) % 31)
    return stream
  }

  private static let noise: (png: PNGFixture, rows: [UInt8]) = {
    var random = SeededRandom(5)
    var png = PNGFixture(width: 100, height: 400)
    png.colourType = 0
    let half = (0..<200).flatMap { _ in
      [0] + (0..<100).map { _ in UInt8.random(in: 0...255, using: &random) }
    }
    return (png, half + half)
  }()

  @Test("a PNG may declare a smaller window than its data needs")
  func window() async throws {
    let (png, rows) = Self.noise
    let stream = Self.smallWindow(rows)
    let file = png.start + PNGFixture.chunk("IDAT", stream) + png.end
    for pieces in [100, .max] { #expect(Decoding(file, pieces: pieces).description?.width == 100) }
    let shown = try await ShownPixels(Rendered(file, as: Variant(.png)).result.get())
    let pixels = stride(from: 0, to: rows.count, by: 101).flatMap { rows[$0 + 1..<$0 + 101] }
    #expect(shown?.pixels.enumerated().filter { $0.offset % 4 == 0 }.map(\.element) == pixels)
    // The same for the data of later frames.
    var animation = AnimatedPNGTests.Animation()
    animation.png = png
    animation.frames = [.init(width: 100, height: 400), .init(width: 100, height: 400)]
    animation.frames[1].stream = stream
    #expect(Decoding(animation.bytes).description?.frames == 2)
    // Other invalid headers are still errors: a wrong FCHECK, and a window of 64 KiB.
    for wrong in [[stream[0], stream[1] ^ 1], [0x88, 0x1C]] as [[UInt8]] {
      let broken = PNGFixture.chunk("IDAT", wrong + stream.dropFirst(2))
      #expect(Decoding(png.start + broken + png.end).isBroken)
    }
  }

  @Test("a PNG is broken if any bit changes in a chunk that pixels depend on")
  func checksums() {
    let whole = Fixtures.smallPNG
    for index in 8..<whole.count {
      var bytes = whole
      bytes[index] ^= 1 << (index % 8)
      #expect(Decoding(bytes).error != nil, "byte \(index)")
    }
  }

  @Test("a PNG is broken if the checksum of tRNS is wrong")
  func transparencyChecksum() {
    var png = Self.sample
    png.before = [PNGFixture.chunk("tRNS", [0, 1, 0, 2, 0, 3])]
    #expect(Decoding(png.bytes).description?.hasAlpha == true)
    png.before[0][png.before[0].count - 1] ^= 1
    for size in [1, .max] {
      #expect(Decoding(png.bytes, pieces: size).isBroken)
    }
  }

  @Test("a PNG with too little image data or an unfinished stream is broken")
  func littleData() {
    let png = Self.sample
    let streams = [
      PNGFixture.zlib(Array(png.rows.dropLast(30))), PNGFixture.zlib([]), [], [0x78],
      Array(PNGFixture.zlib(png.rows).dropLast(4)), Array(PNGFixture.zlib(png.rows).dropLast(9)),
      Array(PNGFixture.zlib(png.rows).dropLast(1)) + [0x55],
    ]
    for stream in streams {
      let decoding = Decoding(png.start + PNGFixture.chunk("IDAT", stream) + png.end)
      #expect(decoding.isBroken, "\(stream.count): \(decoding.result)")
    }
    #expect(Decoding(png.start + png.end).isBroken)
  }

  @Test("a PNG with an invalid header is broken", arguments: 0..<6)
  func header(index: Int) {
    var png = Self.sample
    switch index {
    case 0: png.width = 0
    case 1: png.height = 0
    case 2: png.depth = 3
    case 3: png.colourType = 5
    case 4: png.width = 1 << 31
    default: (png.colourType, png.depth) = (3, 16)
    }
    #expect(Decoding(png.start).isBroken)
  }

  @Test("a PNG with misplaced chunks is broken")
  func order() {
    let png = Self.sample
    let data = PNGFixture.chunk("IDAT", PNGFixture.zlib(png.rows))
    let header = PNGFixture.chunk("IHDR", png.header)
    let text = PNGFixture.chunk("tEXt", [65, 0, 65])
    let wrong: [[UInt8]] = [
      PNGFixture.signature + data + png.end,
      PNGFixture.signature + header + header + data + png.end,
      png.start + PNGFixture.chunk("IDAT", [0x78]) + text
        + PNGFixture.chunk("IDAT", Array(PNGFixture.zlib(png.rows).dropFirst())) + png.end,
      png.start + PNGFixture.chunk("ABCD", [1]) + data + png.end,
      png.start + PNGFixture.chunk("a1cd", [1]) + data + png.end,
      png.start + PNGFixture.chunk("PLTE", Array(repeating: 1, count: 3000)) + data + png.end,
      png.start + [0xFF, 0xFF, 0xFF, 0xFF] + Array("tEXt".utf8) + data + png.end,
    ]
    for (index, bytes) in wrong.enumerated() {
      #expect(Decoding(bytes).isBroken, "\(index): \(Decoding(bytes).result)")
    }
  }

  @Test("a PNG in Apple's variant is unsupported")
  func apple() {
    let bytes = PNGFixture.signature + PNGFixture.chunk("CgBI", [0x50, 0, 0x20, 2])
    #expect(
      Decoding(bytes + Fixtures.smallPNG.dropFirst(8)).error
        == .unsupportedFormat(name: "PNG (Apple's CgBI variant)"))
  }
}

@Suite("A PNG with harmless oddities")
struct OddPNGTests {
  @Test("a PNG with invalid chunks that no pixel depends on is accepted")
  func ancillary() {
    var badSum = PNGFixture.chunk("tEXt", [65, 0, 65])
    badSum[badSum.count - 1] ^= 1
    let chunks: [[UInt8]] = [
      badSum, PNGFixture.chunk("eXIf", []), PNGFixture.chunk("eXIf", [1, 2, 3]),
      PNGFixture.chunk("eXIf", Array(repeating: 0, count: 200_000)),
      PNGFixture.chunk("tRNS", Array(repeating: 0, count: 5000)),
      PNGFixture.chunk("iCCP", Array(repeating: 0, count: 5000)), PNGFixture.chunk("gAMA", [1]),
      Array(repeatElement(PNGFixture.chunk("sPLT", [1]), count: 2000).joined()),
    ]
    for chunk in chunks {
      var png = PNGFixture(width: 9, height: 5)
      png.before = [chunk]
      #expect(
        Decoding(png.bytes, pieces: 500).description
          == ImageDescription(format: .png, width: 9, height: 5))
    }
  }

  @Test("a PNG may have many, empty and superfluous IDAT chunks")
  func data() {
    let png = PNGFixture(width: 9, height: 5)
    let stream = PNGFixture.zlib(png.rows)
    let many = stream.flatMap { PNGFixture.chunk("IDAT", [$0]) + PNGFixture.chunk("IDAT", []) }
    let more = PNGFixture.chunk("IDAT", PNGFixture.zlib(png.rows + png.rows))
    for content in [many, more, PNGFixture.chunk("IDAT", stream + [1, 2, 3])] {
      for size in [1, .max] {
        let decoding = Decoding(png.start + content + png.end, pieces: size)
        #expect(decoding.description != nil, "\(decoding.result)")
      }
    }
  }

  @Test("a long chunk that is skipped takes no memory")
  func longChunk() {
    var png = PNGFixture(width: 9, height: 5)
    png.before = [PNGFixture.chunk("zTXt", Array(repeating: 0x55, count: 300_000))]
    let limits = DecodeLimits(maxMemory: 320_000)
    #expect(Decoding(png.bytes, pieces: 1400, limits: limits).description != nil)
  }
}
