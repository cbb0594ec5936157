import CCodecs
import Codec
import Jobs
import TestSupport
import Testing

@Suite("An image over a limit")
struct LimitTests {
  @Test(
    "an image over a limit is refused by its header",
    arguments: [
      "photo.jpg", "photo-progressive.jpg", "photo.png", "photo.webp", "alpha.webp",
      "animated.webp", "photo.gif", "alpha.avif", "deep.avif",
      "alpha.jxl", "deep.jxl", "boxed.jxl", "animated.jxl", "small.heic", "alpha.heic", "deep.heic",
      "small.ico",
    ])
  func header(name: String) throws {
    let whole = Fixtures.image(name)
    let (width, height) = try (
      #require(Decoding(whole).description).width,
      #require(Decoding(whole).description).height
    )
    let start = Array(whole.prefix(1000))
    let pixels = Decoding(start, limits: DecodeLimits(maxPixels: width * height - 1))
    #expect(
      pixels.error
        == .tooManyPixels(width: width, height: height, limit: width * height - 1))
    let side = Decoding(start, limits: DecodeLimits(maxDimension: width - 1))
    #expect(side.error == .dimensionTooLarge(width: width, height: height, limit: width - 1))
    #expect(pixels.headers.isEmpty && side.headers.isEmpty)

    let exact = DecodeLimits(maxPixels: width * height, maxDimension: max(width, height))
    #expect(Decoding(whole, limits: exact).description != nil)
  }

  @Test(
    "an image is decoded within the memory that its header declares",
    arguments: Fixtures.known.map(\.name))
  func memory(name: String) throws {
    let whole = Fixtures.image(name)
    let needed = try #require(Decoding(whole).headers.first).decodingMemory
    #expect(Decoding(whole, limits: DecodeLimits(maxMemory: needed)).description != nil)
    // With less memory, previews are left out first.
    let without = Decoding(whole, limits: DecodeLimits(maxMemory: needed - 1))
    let least = without.headers.first?.decodingMemory ?? needed
    let less = Decoding(whole, limits: DecodeLimits(maxMemory: least - 1))
    #expect(less.error == .tooMuchMemory(bytes: least, limit: least - 1))
  }

  @Test("an interlaced PNG takes no memory for previews if they are disabled")
  func previews() throws {
    var png = PNGFixture(width: 400, height: 300)
    png.isInterlaced = true
    let file = png.start
    func memory(_ prepare: (OpaquePointer) -> Void) throws -> Int {
      let reader = try #require(png_reader_create(.max))
      defer { png_reader_destroy(reader) }
      prepare(reader)
      #expect(png_reader_step(reader, file, file.count, false).status == .header)
      return png_reader_picture(reader).decodingMemory
    }
    let (with, without) = try (memory { _ in }, memory(png_reader_disable_previews))
    #expect(without < with)
  }

  @Test(
    "an arithmetic-coded JPEG may wait with 8 MiB, which its header's memory includes",
    arguments: [65_536, .max])
  func arithmeticBacklog(pieces: Int) throws {
    let limit = 8 << 20
    let whole = Fixtures.image("arithmetic.jpg")
    #expect(try #require(Decoding(whole).headers.first).decodingMemory > limit)
    let within = whole + [UInt8](repeating: 0, count: limit - whole.count)
    #expect(Decoding(within, pieces: pieces).description != nil)

    let beyond = Decoding(within + [UInt8](repeating: 0, count: 100_000), pieces: pieces)
    guard case .tooMuchMemory(let bytes, limit) = beyond.error else {
      Issue.record("all bytes were kept: \(beyond.result)")
      return
    }
    #expect(bytes > limit)
  }

  @Test("a WebP, GIF or AVIF with huge sides in its header is refused by its header")
  func hugeSides() throws {
    var webp = WebPFixture(Fixtures.image("exif.webp"))
    webp.chunks[0].content.replaceSubrange(4..<10, with: [UInt8](repeating: 0xFF, count: 6))
    let side = 1 << 24
    #expect(
      Decoding(webp.bytes).error == .dimensionTooLarge(width: side, height: side, limit: 30_000))

    var gif = GIFFixture(width: 4, height: 2)
    (gif.width, gif.height) = (65_535, 65_535)
    #expect(
      Decoding(gif.bytes).error
        == .dimensionTooLarge(width: 65_535, height: 65_535, limit: 30_000))

    var avif = Fixtures.image("small.avif")
    let box = try #require(avif.indices.first { avif[$0...].starts(with: "ispe".utf8) })
    // Version and flags, then 32 bits a side.
    avif.replaceSubrange(box + 8..<box + 16, with: [0, 0, 0x20, 0, 0, 0, 0x20, 0])
    #expect(
      Decoding(avif).error == .tooManyPixels(width: 8192, height: 8192, limit: 50_000_000))
    avif.replaceSubrange(box + 8..<box + 16, with: [0, 0x20, 0, 0, 0, 0x20, 0, 0])
    guard case .tooMuchMemory = Decoding(avif).error else {
      Issue.record("\(Decoding(avif).result)")
      return
    }
  }

  @Test("a PNG of a million by a million pixels is refused at its header")
  func hugePNG() {
    for side in [1_000_000, 1_000_001, UInt32(Int32.max)] {
      var png = PNGFixture(width: side, height: side)
      png.depth = 16
      let decoding = Decoding(png.start)
      let sides = (Int(side), Int(side))
      #expect(
        decoding.error
          == .dimensionTooLarge(width: sides.0, height: sides.1, limit: 30_000)
          || (side == UInt32(Int32.max) && decoding.isBroken))
    }
  }

  @Test("a JPEG of 65,500 pixels a side is refused by its sides, pixels or memory")
  func hugeJPEG() {
    var jpeg = JPEGFixture(Fixtures.progressiveJPEG)
    jpeg.resize(width: 65_500, height: 65_500)
    #expect(
      Decoding(jpeg.bytes).error
        == .dimensionTooLarge(width: 65_500, height: 65_500, limit: 30_000))
    var limits = DecodeLimits(maxDimension: 100_000)
    #expect(
      Decoding(jpeg.bytes, limits: limits).error
        == .tooManyPixels(width: 65_500, height: 65_500, limit: 50_000_000))
    limits.maxPixels = .max
    guard case .tooMuchMemory(let bytes, _) = Decoding(jpeg.bytes, limits: limits).error else {
      Issue.record("decoded, or refused for another reason")
      return
    }
    #expect(bytes > 65_500 * 65_500 * 2)
  }

  @Test("libjpeg's own limit of sides is reported like ours")
  func libraryLimit() {
    var jpeg = JPEGFixture(Fixtures.jpeg)
    jpeg.resize(width: 65_535, height: 8)
    let limits = DecodeLimits(maxDimension: 100_000)
    #expect(
      Decoding(jpeg.bytes, limits: limits).error
        == .dimensionTooLarge(width: 65_535, height: 8, limit: 65_500))
  }

  @Test("a JPEG over the limit of scans is refused when the scan begins")
  func scans() {
    let file = Fixtures.image("flat-progressive.jpg")
    var bomb = JPEGFixture(file)
    bomb.repeatLastScan(times: 500)
    let decoding = Decoding(bomb.bytes)
    #expect(decoding.error == .tooManyScans(limit: 100))
    #expect(decoding.longestStep < .milliseconds(500))

    var hundred = JPEGFixture(file)
    hundred.repeatLastScan(times: 98)
    #expect(Decoding(hundred.bytes).description != nil)
    // The work of all scans is limited by the allowed pixels of an image.
    let tight = DecodeLimits(maxPixels: 4_000_000)
    #expect(Decoding(hundred.bytes, limits: tight).error == .tooManyScans(limit: 16))
    #expect(Decoding(file, limits: DecodeLimits(maxScans: 1)).error == .tooManyScans(limit: 1))
    #expect(Decoding(Fixtures.jpeg, limits: DecodeLimits(maxScans: 1)).description != nil)
  }

  @Test("an AVIF that is accepted has enough memory for a variant")
  func variants() throws {
    let encoder = try #require(avif_encoder_open(2000, 1500, 4, 60))
    defer { encoder.pointee.close(encoder) }
    let row = [UInt8](repeating: 200, count: 2000 * 4)
    for _ in 0..<1500 { try #require(encoder.pointee.rows(encoder, row, row.count, 1)) }
    try #require(encoder.pointee.finish(encoder))
    let file = Array(
      UnsafeBufferPointer(start: encoder.pointee.bytes, count: encoder.pointee.count))

    let whole = Decoding(file)
    let image = try #require(whole.description)
    let variant = Variant(.png, 1, 1)
    let needed = StreamingRenderer().memory(for: variant, from: image) + file.count
    #expect(needed > 64 << 20 && needed > (whole.headers.first?.decodingMemory ?? .max))
    let enough = Decoding(file, limits: DecodeLimits(maxMemory: needed))
    #expect(enough.description == image)
    #expect(Rendered(file, as: variant).file != nil)
    guard
      case .tooMuchMemory(let bytes, limit: let limit) =
        Decoding(file, limits: DecodeLimits(maxMemory: 65 << 20)).error
    else {
      Issue.record("it would have no variants")
      return
    }
    #expect(limit == 65 << 20 && bytes <= needed && bytes > limit)
  }
}
