import CCodecs
import Codec
import Jobs
import TestSupport
import Testing

@Suite("A TIFF")
struct TIFFTests {
  @Test(
    "is no image wherever it ends",
    arguments: [
      "jpeg.tiff", "group3.tiff", "group4.tiff", "grey4.tiff", "separate.tiff", "mono.tiff",
      "premultiplied.tiff", "turned-6.tiff", "palette.tiff", "grey.tiff",
    ])
  func cutShort(name: String) {
    let whole = Fixtures.image(name)
    for count in 1..<whole.count {
      let pieces = count % 3 == 0 ? 1 : count % 3 == 1 ? 50 : .max
      let decoding = Decoding(Array(whole.prefix(count)), pieces: pieces)
      if count > 3 { #expect(decoding.error == .cutShort, "\(count) bytes: \(decoding.result)") }
      #expect(decoding.description == nil)
    }
  }

  @Test("of many pictures shows the first, and is cut where another one's bytes end")
  func pages() {
    let whole = Fixtures.image("pages.tiff")
    #expect(Decoding(whole).description?.width == 24)
    // Behind them there are some that fill up.
    for count in stride(from: 1_300, to: whole.count - 16, by: 7) {
      #expect(Decoding(Array(whole.prefix(count))).error == .cutShort, "\(count) bytes")
    }
  }

  @Test(
    "has the pixels of the picture that it was made of",
    arguments: [
      ("grey16.tiff", "grey.tiff", 0), ("cmyk.tiff", "plain.tiff", 0),
      ("jpeg.tiff", "plain.tiff", 70), ("separate.tiff", "deep.tiff", 0),
    ] as [(String, String, Int)])
  func source(name: String, source: String, most: Int) {
    let pixels = ReadPixels(Fixtures.image(name), by: tiff_pixels_open)
    let expected = ReadPixels(Fixtures.image(source), by: tiff_pixels_open)
    #expect(pixels.fault == CodecFault.none && pixels.rgba.count == expected.rgba.count)
    let far = zip(pixels.rgba, expected.rgba).map { abs(Int($0) - Int($1)) }.max()
    #expect(far! <= most)
  }

  @Test("has its alpha taken out of its colours where it is mixed into them")
  func premultiplied() {
    let mixed = ReadPixels(Fixtures.image("premultiplied.tiff"), by: tiff_pixels_open)
    let source = ReadPixels(Fixtures.image("deep.tiff"), by: tiff_pixels_open)
    var seen = 0
    for (pixel, colour) in zip(mixed.rgba.indices, source.rgba) where pixel % 4 < 3 {
      let alpha = Int(mixed.rgba[pixel - pixel % 4 + 3])
      guard alpha > 100 else { continue }
      #expect(abs(Int(mixed.rgba[pixel]) - Int(colour)) <= 4)
      seen += 1
    }
    #expect(seen > 300)
  }

  @Test(
    "is broken where its codes are",
    arguments: ["lzw", "deflate", "packbits", "jpeg", "group3", "group4", "palette", "alpha"])
  func codes(name: String) throws {
    let whole = Fixtures.image("\(name).tiff")
    let place = 4..<8
    let directory = whole[place].reversed().reduce(0) { $0 << 8 | Int($1) }
    // Strips lie before the directory, or behind it.
    let codes = directory > 100 ? 8..<directory : (whole.count - 900)..<whole.count
    for part in [3, 5, 7] {
      for byte in [0, 0x55, 0xFF] as [UInt8] {
        var file = whole
        let middle = codes.lowerBound + codes.count * part / 9
        for index in middle..<middle + 40 { file[index] = byte }
        // Damage may be other codes, of other pixels; seldom.
        let decoding = Decoding(file)
        if decoding.description != nil {
          #expect(
            ["packbits", "group3", "group4", "jpeg", "lzw", "palette"].contains(name),
            "\(part), \(byte)")
        } else {
          #expect(decoding.isBroken, "\(decoding.result)")
        }
      }
    }
  }

  @Test("of JPEGs that have as many scans as a still picture needs is decoded, and no other")
  func scans() {
    let whole = TIFFFixture(jpeg: Fixtures.smallJPEG, width: 24, height: 16)
    #expect(Decoding(whole.bytes).description?.width == 24, "\(Decoding(whole.bytes).result)")
    let many = TIFFFixture(
      jpeg: Fixtures.image("small-progressive.jpg"), width: 24, height: 16)
    #expect(
      Decoding(many.bytes).error == .unsupportedFormat(name: "TIFF (a JPEG of many scans)"))
    var cut = TIFFFixture(
      jpeg: Array(Fixtures.smallJPEG.dropLast(60)), width: 24, height: 16)
    #expect(Decoding(cut.bytes).isBroken)
    // Of other sides than the directory tells.
    cut = TIFFFixture(jpeg: Fixtures.smallJPEG, width: 48, height: 32)
    #expect(Decoding(cut.bytes).isBroken)
  }

  @Test("has its alpha, or is refused where the library would leave that out")
  func alpha() {
    func decoding(_ tags: [Int: [Int]]) -> Decoding {
      var file = TIFFFixture(width: 10, height: 10)
      file.strip = [UInt8](repeating: 0x70, count: 500)
      file.tags.merge(tags) { $1 }
      return Decoding(file.bytes)
    }
    let eight = [Int](repeating: 8, count: 5)
    let palette = [Int](repeating: 0x4000, count: 768)
    // Extra samples: 0 is unspecified, 1 mixed alpha, 2 alpha.
    let lost: [[Int: [Int]]] = [
      [258: [16, 16], 262: [1], 277: [2], 338: [2]],
      [258: [8, 8], 262: [3], 277: [2], 320: palette, 338: [1]],
      [258: eight, 262: [5], 277: [5], 338: [2]], [258: eight, 277: [5], 338: [0, 2]],
    ]
    let refused = CodecError.unsupportedFormat(name: "TIFF (alpha beside colours of its kind)")
    for tags in lost { #expect(decoding(tags).error == refused, "\(tags)") }
    let kept: [([Int: [Int]], hasAlpha: Bool)] = [
      ([258: [8, 8], 262: [1], 277: [2], 338: [2]], true),
      ([258: [8, 8], 262: [1], 277: [2], 338: [0]], false),
      ([258: eight, 277: [5], 338: [2, 0]], true),
      ([258: eight, 262: [5], 277: [5], 338: [0]], false),
    ]
    for (tags, hasAlpha) in kept {
      #expect(decoding(tags).description?.hasAlpha == hasAlpha, "\(tags)")
    }
  }

  @Test("in planes whose white is 0 is refused: the library takes it for black")
  func minIsWhite() {
    var file = TIFFFixture(width: 10, height: 10)
    file.tags.merge([258: [8, 8], 262: [1], 273: [8, 108], 277: [2], 279: [100, 100]]) { $1 }
    file.tags.merge([284: [2], 338: [0]]) { $1 }
    #expect(Decoding(file.bytes).description != nil, "\(Decoding(file.bytes).result)")
    file.tags[262] = [0]
    #expect(
      Decoding(file.bytes).error == .unsupportedFormat(name: "TIFF (of a kind that is not decoded)")
    )
  }

  @Test("that tells of what it hasn't takes nothing")
  func hostile() {
    func error(_ change: (inout TIFFFixture) -> Void) -> CodecError? {
      var file = TIFFFixture(width: 10, height: 10)
      change(&file)
      return Decoding(file.bytes, limits: DecodeLimits(maxPixels: 1 << 20)).error
    }
    #expect(error { _ in } == nil)
    let unsupported = CodecError.unsupportedFormat(name: "TIFF (of a kind that is not decoded)")
    #expect(
      error {
        $0.tags.merge([256: [30_000], 257: [30_000], 259: [5]]) { $1 }
      }
        == .tooManyPixels(width: 30_000, height: 30_000, limit: 1 << 20))
    #expect(error { $0.tags.merge([322: [65_536], 323: [65_536]]) { $1 } } == unsupported)
    #expect(error { $0.tags[277] = [60_000] } == unsupported)
    #expect(error { $0.tags[339] = [3, 3, 3] } == unsupported)
    #expect(error { $0.tags[254] = [1] } == unsupported)
    for code in [6, 34661, 34712, 34887, 34925, 50000, 50001] {
      #expect(error { $0.tags[259] = [code] } == unsupported)
    }
    #expect(error { $0.strip.removeLast() } != nil)
    for tag in [273, 279] {
      #expect(error { $0.tags[tag] = [1 << 26] } == .cutShort)
      guard case .tooMuchMemory = error({ $0.tags[tag] = [1 << 31] }) else {
        Issue.record("takes 2 GiB for there")
        return
      }
    }
    #expect(error { $0.tags[278] = [1] } != nil)
    #expect(error { $0.tags[256] = [0] } != nil)
    #expect(error { $0.more = [(40_000, 4, 1 << 24, 8)] } != nil)
    #expect(error { $0.more = [(40_000, 1, 1 << 26, 8)] } == .cutShort)
    // A directory after itself, for ever.
    #expect(error { $0.next = $0.directory } == nil)
    #expect(error { $0.next = 1 << 31 } == .cutShort)
    // Thousands of copies of the same bytes.
    let copies = error { file in
      file.tags.merge([257: [1_000], 256: [100]]) { $1 }
      file.strip = [UInt8](repeating: 1, count: 300_000)
      file.more = (0..<3_000).map { (41_000 + $0, 1, 250_000, 8) }
    }
    guard case .broken = copies else {
      Issue.record("\(copies as Any)")
      return
    }
    #expect(error { $0.more = (0..<4_096).map { (41_000 + $0, 1, 1, 0) } } != nil)
  }

  @Test("is taken only where somebody says so, and decoders are held")
  func optional() {
    #expect(!ImageFormat.usual.contains(.tiff))
    #expect(ImageFormat.needingIsolation.contains(.tiff))
    let usual = Decoding(
      Fixtures.image("lzw.tiff"), limits: DecodeLimits(formats: Set(ImageFormat.usual)))
    #expect(usual.error == .unsupportedFormat(name: "TIFF"))
    #expect(ImageFormat.tiff.contentType == "image/tiff")
  }
}
