import CCodecs
import Jobs
import TestSupport
import Testing

@Suite("The pixels of a stored image")
struct PixelsTests {
  @Test("pixels equal those that Pillow reads", arguments: Fixtures.pixelSums.keys.sorted())
  func agreeWithPillow(name: String) {
    // A debug build takes long for millions of pixels, and these are all alike.
    guard !name.hasPrefix("flat") else { return }
    let known = Fixtures.known.first { $0.name == name }?.description
    guard let open = known?.format.openPixels else {
      Issue.record("no reader for this format")
      return
    }
    for rows in [1, 7, 1000] {
      let pixels = ReadPixels(Fixtures.image(name), by: open, rows: rows)
      #expect(pixels.fault == CodecFault.none)
      #expect(pixels.rgba.count == pixels.width * pixels.height * 4)
      #expect(PNGFixture.crc32(pixels.rgba) == Fixtures.pixelSums[name])
    }
  }

  @Test(
    "pixels of an AVIF are close to its source",
    arguments: ["deep.avif", "small.avif", "grid.avif"])
  func avif(name: String) throws {
    let known = try #require(Fixtures.known.first { $0.name == name }?.description)
    let pixels = ReadPixels(Fixtures.image(name), by: avif_pixels_open)
    #expect(pixels.width == known.width && pixels.height == known.height)
    #expect(pixels.rgba.count == known.width * known.height * 4)
    // The fixtures' blue decreases from top to bottom as their green increases (see make-fixtures.py).
    let last = pixels.rgba.count - 4
    #expect(pixels.rgba[1] < pixels.rgba[last + 1] && pixels.rgba[2] > pixels.rgba[last + 2])
  }

  @Test("pixels have the color profile of their image")
  func profile() {
    let pixels = ReadPixels(Fixtures.image("exif.webp"), by: webp_pixels_open)
    #expect(pixels.profile == [UInt8](repeating: 0x78, count: 601))
    #expect(ReadPixels(Fixtures.image("small.webp"), by: webp_pixels_open).profile.isEmpty)
  }

  @Test("pixels of a WebP are halved as long as they stay large enough")
  func scaled() {
    let file = Fixtures.image("photo.webp")
    for (min, size) in [
      ((0, 0), (480, 320)), ((480, 1), (480, 320)), ((241, 1), (480, 320)),
      ((240, 160), (240, 160)), ((61, 20), (120, 80)), ((1, 1), (1, 1)),
    ] as [((UInt32, UInt32), (Int, Int))] {
      let pixels = ReadPixels(file, by: webp_pixels_open, min: min)
      #expect((pixels.width, pixels.height) == size)
      #expect(pixels.rgba.count == size.0 * size.1 * 4)
    }
  }

  @Test("pixels of a GIF show its first frame on its canvas, clipped to it")
  func canvas() {
    var gif = GIFFixture(width: 4, height: 2)
    gif.width = 6
    gif.height = 3
    gif.frames[0].left = 4
    gif.frames[0].top = 1
    // The first color is black.
    let (clear, black) = ([0, 0, 0, 0] as [UInt8], [0, 0, 0, 255] as [UInt8])
    let row = clear + clear + clear + clear + black + black
    let free = Array(repeatElement(clear, count: 6).joined())
    #expect(ReadPixels(gif.bytes, by: gif_pixels_open).rgba == free + row + row)
    gif.frames[0].left = 60
    #expect(ReadPixels(gif.bytes, by: gif_pixels_open).rgba == free + free + free)
  }

  @Test("reading the pixels of a cut file fails")
  func cut() throws {
    for name in [
      "alpha.webp", "animated.webp", "interlaced.gif", "alpha.avif", "alpha.jxl", "alpha.heic",
      "small.ico", "old.ico",
    ] {
      let whole = Fixtures.image(name)
      let image = try Decoding(whole).result.get()
      // For an animation, only the first frame counts. For a GIF, the end code, the end of blocks and the trailer do
      // not.
      let end = name == "animated.webp" ? 250 : whole.count - (name == "interlaced.gif" ? 5 : 2)
      for count in stride(from: 0, to: end, by: 7) {
        let open = try #require(image.format.openPixels)
        let pixels = ReadPixels(Array(whole.prefix(count)), as: image, by: open)
        #expect(pixels.fault != CodecFault.none, "\(name): \(count) bytes")
      }
    }
  }

  @Test(
    "pixels of an AVIF with an unknown matrix have approximately correct colors")
  func matrix() throws {
    let whole = Fixtures.image("small.avif")
    let colours = try #require(whole.indices.first { whole[$0...].starts(with: "nclx".utf8) })
    for matrix in [0, 3, 10, 14, 200] as [UInt8] {
      var file = whole
      file[colours + 9] = matrix
      let image = try #require(Decoding(file).description)
      let pixels = ReadPixels(file, as: image, by: avif_pixels_open)
      #expect(pixels.rgba.count == image.width * image.height * 4)
    }
  }

  @Test(
    "a reader of pixels that has failed returns no rows afterwards",
    arguments: ["small.avif", "small-lossless.webp"])
  func failed(name: String) throws {
    var file = Fixtures.image(name)
    let image = try #require(Decoding(file).description)
    // The start of the pixels, after the headers.
    let data = file.indices.first { file[$0...].starts(with: "mdat".utf8) }
    for index in (data.map { $0 + 4 } ?? file.count - 40)..<file.count { file[index] = 0xFF }
    try file.withUnsafeBufferPointer { bytes in
      var fault = CodecFault.none
      let open = try #require(image.format.openPixels)
      let opened = open(bytes.baseAddress, bytes.count, CheckedImage(image), 0, 0, &fault)
      let pixels = try #require(opened)
      defer { pixels.pointee.close(pixels) }
      var rows = [UInt8](repeating: 0, count: image.width * image.height * 4)
      let stride = image.width * Int(pixels.pointee.channels)
      var said: [Int32] = []
      while said.count < 100, said.suffix(3) != [-1, -1, -1] {
        said.append(pixels.pointee.rows(pixels, &rows, stride, Int32(image.height)))
      }
      #expect(said.suffix(3) == [-1, -1, -1])
    }
  }
}
