import Codec
import Jobs
import TestSupport
import Testing

@Suite("Hostile bytes")
struct HostileTests {
  static let seeds = [
    "small.jpg", "small-progressive.jpg", "restart.jpg", "arithmetic-progressive.jpg",
    "cmyk-progressive.jpg", "exif.jpg", "scans.jpg", "progressive-restart.jpg", "small.png",
    "palette-transparent.png", "mono.png", "exif.png", "grey16.png", "rgba.png", "animated.png",
    "small.webp", "small-lossless.webp", "alpha.webp", "exif.webp", "animated.webp",
    "animated-lossless.webp", "small.gif", "interlaced.gif", "animated.gif", "small.avif",
    "alpha.avif", "grid.avif", "animated.avif", "small.jxl", "small-lossless.jxl", "boxed.jxl",
    "recompressed.jxl", "grey.jxl", "deep.jxl", "alpha.jxl", "alpha-lossless.jxl",
    "progressive.jxl", "progressive-lossless.jxl", "animated.jxl", "blinking.jxl", "layers.jxl",
    "turned-5.jxl", "wide.jxl", "small.heic", "alpha.heic", "deep.heic", "clap.heic",
    "lossless.heic",
    "sequence.heic", "track.heic", "thumbnail.heic", "small.ico",
    "old.ico",
  ]

  /// Images of at most 16 MP, so that a changed header cannot make decoding slow.
  static let limits = DecodeLimits(maxPixels: 16_000_000, maxMemory: 1 << 28)

  @Test("decoding randomly changed bytes ends in time with a result or an error", arguments: seeds)
  func mutants(name: String) {
    var random = SeededRandom(for: name)
    let seed = Fixtures.image(name)
    for _ in 0..<300 {
      let mutant = random.mutant(of: seed)
      let pieces = [1, 13, 700, Int.max].randomElement(using: &random) ?? 1
      let decoding = Decoding(mutant, pieces: pieces, limits: Self.limits)
      #expect(decoding.headers.count <= 1)
      #expect(decoding.description == nil || decoding.headers.count == 1)
    }
  }

  @Test(
    "images that expand from few bytes are decoded in short steps",
    arguments: [
      "flat-paeth.png", "flat-progressive.jpg", "photo.jpg", "photo-progressive.jpg",
      "flat.gif", "photo.webp", "flat-lossless.webp", "animated.gif",
    ])
  func steps(name: String) {
    let decoding = Decoding(Fixtures.image(name))
    #expect(decoding.description != nil)
    // Much longer than 10 ms, because other tests and sanitizers share the machine.
    #expect(decoding.longestStep < .milliseconds(300))
    if name == "flat-paeth.png" { #expect(decoding.steps > 10) }
    if name == "flat.gif" { #expect(decoding.steps > 3) }
  }

  @Test("a decoder that has failed repeats its error and accepts no more bytes")
  func settled() {
    let decoder = StreamingCodec().makeDecoder(limits: DecodeLimits())
    decoder.append(Array("8BPS".utf8))
    decoder.finishInput()
    for _ in 0..<3 {
      #expect(throws: CodecError.unsupportedFormat(name: "PSD")) { try decoder.step() }
      decoder.append(Fixtures.jpeg)
    }
  }

  @Test("bytes that trickle into a long marker are not read again each time")
  func drip() {
    var jpeg = JPEGFixture(Fixtures.smallJPEG)
    for _ in 0..<3 {
      jpeg.insert(EXIFFixture.app1(Array(repeating: 0, count: 65_000)))
    }
    #expect(Decoding(jpeg.bytes, pieces: 1).description != nil)
  }
}
