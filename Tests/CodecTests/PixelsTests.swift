import CCodecs
import Jobs
import TestSupport
import Testing

@Suite("The pixels of an image that was kept")
struct PixelsTests {
  @Test("are those that Pillow sees", arguments: Fixtures.pixelSums.keys.sorted())
  func agreeWithPillow(name: String) {
    // Millions of pixels take a debug build long, and these are all alike.
    guard !name.hasPrefix("flat") else { return }
    let known = Fixtures.known.first { $0.name == name }?.description
    guard let open = known?.format.openPixels else {
      Issue.record("nobody reads it")
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
    "of AVIF are near to what was encoded", arguments: ["deep.avif", "small.avif", "grid.avif"])
  func avif(name: String) throws {
    let known = try #require(Fixtures.known.first { $0.name == name }?.description)
    let pixels = ReadPixels(Fixtures.image(name), by: avif_pixels_open)
    #expect(pixels.width == known.width && pixels.height == known.height)
    #expect(pixels.rgba.count == known.width * known.height * 4)
    // The fixtures' blue falls from top to bottom as their green rises (see make-fixtures.py).
    let last = pixels.rgba.count - 4
    #expect(pixels.rgba[1] < pixels.rgba[last + 1] && pixels.rgba[2] > pixels.rgba[last + 2])
  }

  @Test("come with the colour profile where there is one")
  func profile() {
    let pixels = ReadPixels(Fixtures.image("exif.webp"), by: webp_pixels_open)
    #expect(pixels.profile == [UInt8](repeating: 0x78, count: 601))
    #expect(ReadPixels(Fixtures.image("small.webp"), by: webp_pixels_open).profile.isEmpty)
  }

  @Test("of WebP are halved as long as they stay large enough")
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

  @Test("of a GIF are its first frame on its canvas, clipped to that")
  func canvas() {
    var gif = GIFFixture(width: 4, height: 2)
    gif.width = 6
    gif.height = 3
    gif.frames[0].left = 4
    gif.frames[0].top = 1
    // The first colour is black.
    let (clear, black) = ([0, 0, 0, 0] as [UInt8], [0, 0, 0, 255] as [UInt8])
    let row = clear + clear + clear + clear + black + black
    let free = Array(repeatElement(clear, count: 6).joined())
    #expect(ReadPixels(gif.bytes, by: gif_pixels_open).rgba == free + row + row)
    gif.frames[0].left = 60
    #expect(ReadPixels(gif.bytes, by: gif_pixels_open).rgba == free + free + free)
  }

  @Test("of a file that was cut are none or a failure")
  func cut() throws {
    for name in [
      "alpha.webp", "animated.webp", "interlaced.gif", "alpha.avif", "alpha.jxl", "alpha.heic",
      "palette.bmp", "small.ico", "old.ico",
    ] {
      let whole = Fixtures.image(name)
      let image = try Decoding(whole).result.get()
      // Of an animation, the first frame is all that counts. A GIF's end code, end of blocks and trailer do not.
      let end = name == "animated.webp" ? 250 : whole.count - (name == "interlaced.gif" ? 5 : 2)
      for count in stride(from: 0, to: end, by: 7) {
        let open = try #require(image.format.openPixels)
        let pixels = ReadPixels(Array(whole.prefix(count)), as: image, by: open)
        #expect(pixels.fault != CodecFault.none, "\(name): \(count) bytes")
      }
    }
  }

  @Test(
    "of an AVIF are there whatever its matrix is: one that nobody knows makes colours nearly right")
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
    "of a reader that failed are none, however often they are asked for",
    arguments: ["small.avif", "small-lossless.webp"])
  func failed(name: String) throws {
    var file = Fixtures.image(name)
    let image = try #require(Decoding(file).description)
    // Where there are pixels, beyond the heads.
    let data = file.indices.first { file[$0...].starts(with: "mdat".utf8) }
    for index in (data.map { $0 + 4 } ?? file.count - 40)..<file.count { file[index] = 0xFF }
    try file.withUnsafeBufferPointer { bytes in
      var fault = CodecFault.none
      let open = try #require(image.format.openPixels)
      let opened = open(bytes.baseAddress, bytes.count, CheckedPicture(image), 0, 0, &fault)
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
