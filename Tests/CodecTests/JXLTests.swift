import CCodecs
import Codec
import Foundation
import Jobs
import TestSupport
import Testing

@Suite("A JPEG XL")
struct JXLTests {
  @Test(
    "a JPEG XL that is cut anywhere is refused",
    arguments: [
      "small.jxl", "small-lossless.jxl", "boxed.jxl", "recompressed.jxl", "deep.jxl", "alpha.jxl",
      "animated.jxl", "blinking.jxl", "turned-6.jxl",
    ])
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

  @Test(
    "a JPEG XL has the pixels of its source, as Pillow shows them",
    arguments: [
      // Two libraries differ in the inverse transforms and the chroma interpolation.
      ("recompressed.jxl", "ycbcr-420.jpg", 40), ("deep.jxl", "grey.png", 1),
      ("grey.jxl", "grey.png", 60),
    ] as [(String, String, Int)])
  func source(name: String, source: String, most: Int) async throws {
    let pixels = ReadPixels(Fixtures.image(name), by: jxl_pixels_open)
    #expect(pixels.fault == CodecFault.none)
    let shown = try #require(try await ShownPixels(Fixtures.image(source)))
    #expect((pixels.width, pixels.height) == (shown.width, shown.height))
    let far = zip(pixels.rgba, shown.pixels).map { abs(Int($0) - Int($1)) }.max()
    #expect(far! <= most)
  }

  @Test(
    "a JPEG XL of any kind is close to its source",
    arguments: [
      "small.jxl", "small-lossless.jxl", "boxed.jxl", "recompressed.jxl", "alpha.jxl",
      "progressive.jxl", "progressive-lossless.jxl",
    ])
  func colours(name: String) throws {
    let known = try #require(Fixtures.known.first { $0.name == name }?.description)
    let pixels = ReadPixels(Fixtures.image(name), by: jxl_pixels_open)
    #expect(pixels.width == known.width && pixels.height == known.height)
    #expect(pixels.rgba.count == known.width * known.height * 4)
    #expect(pixels.profile.isEmpty)
    // The fixtures' blue decreases from top to bottom as their green increases (see make-fixtures.py).
    let last = pixels.rgba.count - 4
    #expect(pixels.rgba[1] < pixels.rgba[last + 1])
    if known.hasAlpha { return }
    #expect(pixels.rgba[2] > pixels.rgba[last + 2])
  }

  @Test(
    "a JPEG XL has its profile applied, and sRGB pixels if stored in the library's color space",
    arguments: [
      ("wide.jxl", "wide.png", 0), ("wide-lossy.jxl", "wide.png", 40),
      ("grey-gamma.jxl", "grey-gamma.png", 0),
    ] as [(String, String, Int)])
  func profile(name: String, source: String, most: Int) async throws {
    let file = Fixtures.image(name)
    #expect(ReadPixels(file, by: jxl_pixels_open).profile.isEmpty == (most > 0))
    var shown: [ShownPixels] = []
    for file in [file, Fixtures.image(source)] {
      let variant = try Rendered(file, as: Variant(.png)).result.get()
      shown.append(try #require(try await ShownPixels(variant)))
    }
    let far = zip(shown[0].pixels, shown[1].pixels).map { abs(Int($0) - Int($1)) }.max()
    #expect(far! <= most)
  }

  @Test(
    "a JPEG XL with broken data is broken",
    arguments: ["small.jxl", "small-lossless.jxl", "alpha.jxl"])
  func data(name: String) {
    let whole = Fixtures.image(name)
    for byte in [0, 0x55, 0xFF] as [UInt8] {
      let blank =
        whole.prefix(20) + [UInt8](repeating: byte, count: whole.count - 20)
      let decoding = Decoding(Array(blank))
      #expect(decoding.isBroken || decoding.error == .cutShort, "\(decoding.result)")
    }
  }

  @Test("a JPEG XL with huge sides in its header is refused by its header")
  func sides() {
    // Two sides of 2^30, each in 32 bits, and nothing else.
    let start: [UInt8] = [0xFF, 0x0A, 0xFE, 0xFF, 0xFF, 0xFF, 0xF1, 0xFF, 0xFF, 0xFF, 0x1F]
    let error = Decoding(start + [UInt8](repeating: 0, count: 40)).error
    guard case .dimensionTooLarge = error else {
      Issue.record("\(String(describing: error))")
      return
    }
  }

  @Test("the layers of a frame count toward the limits of frames and pixels")
  func layers() {
    let whole = Fixtures.image("layers.jxl")
    for pieces in [1, 40, .max] {
      #expect(Decoding(whole, pieces: pieces).description?.frames == 1)
      let few = Decoding(whole, pieces: pieces, limits: DecodeLimits(maxFrames: 19))
      #expect(few.error == .tooManyFrames(limit: 19))
      // A layer costs as much as the whole canvas, however small it is.
      let tight = Decoding(whole, pieces: pieces, limits: DecodeLimits(maxPixels: 200 * 200))
      #expect(tight.error == .tooManyFrames(limit: 16) || tight.error == .tooManyFrames(limit: 1))
      #expect(few.headers.count == 1)
    }
  }

  /// 1000 × 600 in one color, lossless, by libjxl's encoder: with 15 channels of depth, with one, and as an animation
  /// of one frame.
  private static let costlier = [
    """
    /wq6Euh8gLYAAggggAACCCCAAAIIIIAAAgggAQgAAACAAAAAABAAlAAAAMABHMABHMABHMABHEABFEABFABLKDKOHRJXYAI0
    mACGXf4fWTF4cYxBjr7AEYAAAJBCGQHwFRIhIxado5BoBiMWnaOQaAYjFp2jkGgGk/F/JJBoBiMWnaOQaAYjFp2jkGgGIxad
    o5BoBpPxfySQaAbzffkiAfN9+SIB8335IgFj0rytAA==
    """,
    """
    /wq6Euh8gAkgAQgIEAB0AAAAwAEcwAEcwAEcwAEcQAEUQAEUAEsoNkTPFZgAYBLmXf7fZReQAABINABAYA/yLYEEozAjpeBf
    C6MwI6XgXwujMCOl4F8L09zWJOBfC6MwI6XgXwujMCOl4F8LozAjpeBfC9Pc1iTgXwsj1RsjASPVGyMBI9UbIwHjRNGtAA==
    """,
    """
    /wq6Euh8CJoAQEwIAgUAeAAAAEADNEADNEADNEADNMABHMABHABLKDY0zxUwIQDqjTHGjXH3AhEAABLKBAAQQB4BAApT1i4x
    gAyhkh8QSwECU9YuMYAMoZIfEEsBAlPWLjGADKGSHxBLAQLzX4sAgAyhkh8QSwECU9YuMYAMoZIfEEsBAlPWLjGADKGSHxBL
    AQJT1i4xgAyhkh8QSwEC81+LAIAMoZIfEEsBAtPc0A9BAQLT3NAPQQEC09zQD0EBApPa1jlAAQI=
    """,
  ]

  @Test(
    "the extra memory of a JPEG XL is included in the memory for variants",
    arguments: costlier)
  func extraMemory(file: String) throws {
    let file = Array(
      try #require(Data(base64Encoded: file, options: .ignoreUnknownCharacters)))
    let decoding = Decoding(file)
    let image = try #require(decoding.description)
    #expect((image.width, image.height, image.frames) == (1000, 600, 1))
    let variant = Variant(.png, 10, 6)
    let needed = try #require(decoding.headers.first).decodingMemory + 1000 * 600 * 3
    #expect(StreamingRenderer().memory(for: variant, from: image) >= needed)
    #expect(Rendered(file, as: variant).file != nil)
    var other = image
    other.extraMemory = nil
    #expect(ReadPixels(file, as: other, by: jxl_pixels_open).fault == .tooMuchMemory)
  }

  @Test("JPEG XL is decoded only where it is enabled")
  func refused() {
    let file = Fixtures.image("small.jxl")
    #expect(ImageFormat.needingIsolation.contains(.jxl))
    #expect(!ImageFormat.decodedAnywhere.contains(.jxl))
    let decoder = StreamingCodec(formats: ImageFormat.decodedAnywhere)
      .makeDecoder(limits: DecodeLimits())
    decoder.append(file)
    decoder.finishInput()
    #expect(throws: CodecError.unsupportedFormat(name: "JPEG XL")) { try decoder.step() }
    let image = ImageDescription(format: .jxl, width: 24, height: 16)
    let rendering = StreamingRenderer(of: ImageFormat.decodedAnywhere)
      .render(file, of: image, as: [Variant(.png)])
    #expect(throws: CodecError.unsupportedFormat(name: "JPEG XL")) { try rendering.step() }
  }
}
