import CCodecs
import Codec
import Jobs
import TestSupport
import Testing

@Suite("An ICO")
struct ICOTests {
  private static func little(_ value: Int, _ bytes: Int) -> [UInt8] {
    (0..<bytes).map { UInt8(truncatingIfNeeded: value >> (8 * $0)) }
  }

  /// A bitmap's header.
  private static func header(
    _ width: Int, _ height: Int, bits: Int, compression: Int = 0, colours: Int = 0
  ) -> [UInt8] {
    little(40, 4) + little(width, 4) + little(height, 4) + little(1, 2) + little(bits, 2)
      + little(compression, 4) + little(0, 12) + little(colours, 4) + little(0, 4)
  }

  private static func icon(_ pictures: [(side: Int, bits: Int, bytes: [UInt8])]) -> [UInt8] {
    var (directory, data) = (little(0, 2) + little(1, 2) + little(pictures.count, 2), [UInt8]())
    for picture in pictures {
      let side = UInt8(picture.side & 255)
      let place = 6 + 16 * pictures.count + data.count
      directory += [side, side, 0, 0]
      directory += little(1, 2) + little(picture.bits, 2)
      directory += little(picture.bytes.count, 4) + little(place, 4)
      data += picture.bytes
    }
    return directory + data
  }

  /// An icon of one bitmap.
  private static func icon(_ bitmap: [UInt8]) -> [UInt8] { icon([(2, 24, bitmap)]) }

  /// Two rows of three pixels, the lower one first, and the mask of each.
  private static let small: [UInt8] = {
    let lower: [UInt8] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0]
    let upper: [UInt8] = [11, 12, 13, 14, 15, 16, 17, 18, 19, 0, 0, 0]
    return icon(header(3, 4, bits: 24) + lower + upper + [UInt8](repeating: 0, count: 8))
  }()
  /// The same image with rows from top to bottom, in 32 bits; the fourth byte is unused.
  private static let topDown: [UInt8] = {
    let upper: [UInt8] = [11, 12, 13, 0, 14, 15, 16, 0, 17, 18, 19, 0]
    let lower: [UInt8] = [1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9, 0]
    return icon(header(3, -4, bits: 32) + upper + lower)
  }()
  private static let palette: [UInt8] = [0, 0, 0, 0, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 0]
  /// One row of four pixels. The last index is not in the palette.
  private static let indexed = icon(
    header(4, 2, bits: 8, colours: 4) + palette + [1, 2, 3, 4] + [0, 0, 0, 0])
  private static let oldIcon: [UInt8] = {
    let pixels: [UInt8] = [1, 2, 3, 4, 5, 6, 0, 0, 7, 8, 9, 10, 11, 12, 0, 0]
    let mask: [UInt8] = [0x80, 0, 0, 0, 0, 0, 0, 0]
    return icon([(2, 24, header(2, 4, bits: 24) + pixels + mask)])
  }()
  private static let pngIcon: [UInt8] = {
    let dot: [UInt8] = header(1, 2, bits: 32) + [1, 2, 3, 255, 0, 0, 0, 0]
    return icon([(1, 32, dot), (12, 24, Fixtures.smallPNG)])
  }()
  static let files = [small, topDown, indexed, oldIcon, pngIcon]

  @Test("a bitmap has the colors of its palette")
  func pixels() {
    let upright: [UInt8] = [13, 12, 11, 255, 16, 15, 14, 255, 19, 18, 17, 255]
    let expected = upright + [3, 2, 1, 255, 6, 5, 4, 255, 9, 8, 7, 255]
    #expect(ReadPixels(Self.small, by: ico_pixels_open).rgba == expected)
    #expect(ReadPixels(Self.topDown, by: ico_pixels_open).rgba == expected)
    let row: [UInt8] = [255, 0, 0, 255, 0, 255, 0, 255, 0, 0, 255, 255, 0, 0, 0, 255]
    #expect(ReadPixels(Self.indexed, by: ico_pixels_open).rgba == row)
    let turned: [UInt8] = [9, 8, 7, 255, 12, 11, 10, 255, 0, 0, 0, 0, 6, 5, 4, 255]
    #expect(ReadPixels(Self.oldIcon, by: ico_pixels_open).rgba == turned)
    let shown = ReadPixels(Self.pngIcon, by: ico_pixels_open)
    #expect((shown.width, shown.height) == (12, 9))
    #expect(shown.fault == CodecFault.none && shown.rgba.count == 4 * 12 * 9)
  }

  @Test("a bitmap of any depth has a description and variants", arguments: [1, 4, 8, 16, 24, 32])
  func depths(bits: Int) throws {
    let palette = bits <= 8 ? [UInt8](repeating: 0x40, count: 4 << bits) : []
    let pixels = [UInt8](repeating: 0x5A, count: (9 * bits + 31) / 32 * 4 * 5)
    let mask = [UInt8](repeating: 0, count: 4 * 5)
    let whole = Self.icon(Self.header(9, 10, bits: bits) + palette + pixels + mask)
    for pieces in [1, 7, .max] {
      let description = try #require(Decoding(whole, pieces: pieces).description)
      #expect((description.width, description.height, description.format) == (9, 5, .ico))
    }
    let png = try Rendered(whole, as: Variant(.png, 4)).result.get()
    #expect(Decoding(png).description?.width == 4)
  }

  @Test("an ICO that is cut anywhere is refused", arguments: files)
  func cutShort(whole: [UInt8]) {
    #expect(Decoding(whole).description != nil, "\(Decoding(whole).result)")
    for count in 1..<whole.count {
      for pieces in [1, .max] {
        let decoding = Decoding(Array(whole.prefix(count)), pieces: pieces)
        #expect(decoding.description == nil, "\(count): \(decoding.result)")
      }
    }
  }

  @Test("decoding a randomly changed ICO ends with a result or an error", arguments: files)
  func mutants(seed: [UInt8]) throws {
    var random = SeededRandom(UInt64(seed.count))
    let image = try Decoding(seed).result.get()
    for _ in 0..<400 {
      let mutant = random.mutant(of: seed)
      let decoding = Decoding(mutant, pieces: 5, limits: HostileTests.limits)
      #expect(decoding.description == nil || decoding.headers.count == 1)
      let rendered = Rendered(mutant, as: Variant(.png, 2), described: image)
      if let file = rendered.file { #expect(Decoding(file).description?.width == 2) }
    }
  }

  @Test("a bitmap in an icon with run-length codes is refused", arguments: [(8, 1), (4, 2)])
  func coded(bits: Int, compression: Int) {
    let header = Self.header(4, 4, bits: bits, compression: compression, colours: 4)
    let decoding = Decoding(Self.icon(header + Self.palette + [4, 1, 0, 0, 4, 1, 0, 1]))
    #expect(decoding.error == .unsupportedFormat(name: "ICO (unsupported kind of bitmap)"))
  }

  @Test("a bitmap in an icon must have all of its masks")
  func masks() {
    var header = Self.header(1, 2, bits: 32, compression: 6)
    header[0] = 52
    for mask in [0xFF0000, 0xFF00, 0xFF] { header += Self.little(mask, 4) }
    // A fourth mask, which this header does not include.
    for count in 0...4 {
      let decoding = Decoding(Self.icon(header + Self.little(0xFF00_0000, 4).prefix(count)))
      #expect(decoding.headers.count == (count < 4 ? 0 : 1))
      #expect(decoding.isBroken == (count < 4))
    }
  }

  @Test("a bitmap in an icon must have a valid header length")
  func iconHeaders() {
    let rest = [UInt8](repeating: 0, count: 24)
    for size in 40...124 {
      var header = Self.header(2, 4, bits: 24) + [UInt8](repeating: 0, count: size - 40)
      header[0] = UInt8(size)
      let decoding = Decoding(Self.icon([(2, 24, header + rest)]))
      if [40, 52, 56, 64, 108, 124].contains(size) {
        #expect(decoding.description?.width == 2, "\(size): \(decoding.result)")
      } else {
        let refused = CodecError.unsupportedFormat(name: "ICO (unsupported kind of bitmap)")
        #expect(decoding.error == refused, "\(size): \(decoding.result)")
      }
    }
  }

  @Test("the reserved byte of an icon's entry may have any value")
  func reserved() {
    for value in [1, 7, 255] as [UInt8] {
      var icon = Self.oldIcon
      icon[9] = value
      #expect(Decoding(icon) == Decoding(Self.oldIcon))
    }
    // An icon without images breaks the rules.
    #expect(Decoding([0, 0, 1, 0, 0, 0]).isBroken)
  }

  @Test("a bitmap in an icon without a mask is opaque if its entry ends after the pixels")
  func noMask() {
    let pixels: [UInt8] = [1, 2, 3, 4, 5, 6, 0, 0, 7, 8, 9, 10, 11, 12, 0, 0]
    let picture = Self.header(2, 4, bits: 24) + pixels
    let opaque: [UInt8] = [9, 8, 7, 255, 12, 11, 10, 255, 3, 2, 1, 255, 6, 5, 4, 255]
    let icon = Self.icon([(2, 24, picture)])
    for pieces in [1, .max] { #expect(Decoding(icon, pieces: pieces).description?.width == 2) }
    #expect(ReadPixels(icon, by: ico_pixels_open).rgba == opaque)
    // An incomplete mask is ignored.
    let some = Self.icon([(2, 24, picture + [0xFF, 0, 0, 0])])
    #expect(ReadPixels(some, by: ico_pixels_open).rgba == opaque)
    #expect(Decoding(Self.icon([(2, 24, Array(picture.dropLast()))])).isBroken)
    for count in 1..<icon.count { #expect(Decoding(Array(icon.prefix(count))).description == nil) }
  }

  @Test("an icon's entry may omit the length", arguments: [oldIcon, pngIcon])
  func noLength(icon: [UInt8]) {
    var bare = icon
    let entry = 6 + (Int(icon[4]) - 1) * 16
    bare.replaceSubrange(entry + 8..<entry + 12, with: [0, 0, 0, 0])
    let expected = ReadPixels(icon, by: ico_pixels_open)
    for pieces in [1, .max] {
      let decoding = Decoding(bare, pieces: pieces)
      #expect(decoding.description == Decoding(icon).description, "\(decoding.result)")
      #expect(Decoding(bare + [1, 2, 3], pieces: pieces).description == decoding.description)
    }
    let shown = ReadPixels(bare, by: ico_pixels_open)
    #expect(shown.rgba == expected.rgba && !shown.rgba.isEmpty)
    // Then a bitmap needs its mask. A PNG may lack its end, as in other files.
    let end = entry > 6 ? icon.count - 12 : icon.count
    for count in 1..<end {
      #expect(Decoding(Array(bare.prefix(count))).description == nil, "\(count)")
    }
  }

  @Test("a bitmap in an icon has a mask only within its own entry")
  func otherEntry() {
    let pixel: [UInt8] = [1, 1, 1, 0]
    let picture = Self.header(2, 4, bits: 32) + pixel + pixel + pixel + pixel
    let other = [UInt8](repeating: 0xFF, count: 48)
    let opaque = ReadPixels(
      Self.icon([(2, 32, picture), (1, 24, other)]), by: ico_pixels_open)
    #expect(opaque.rgba == [1, 1, 1, 255, 1, 1, 1, 255, 1, 1, 1, 255, 1, 1, 1, 255])
    let mask: [UInt8] = [0xFF, 0, 0, 0, 0, 0, 0, 0]
    let masked = ReadPixels(
      Self.icon([(2, 32, picture + mask), (1, 24, other)]), by: ico_pixels_open)
    #expect(masked.rgba == [1, 1, 1, 255, 1, 1, 1, 255, 0, 0, 0, 0, 0, 0, 0, 0])
  }

  @Test("a bitmap that needs no palette may declare one of any length")
  func palettes() {
    let header = Self.header(1, 2, bits: 24, colours: 300)
    let bytes = Self.icon(header + [UInt8](repeating: 7, count: 1_200) + [1, 2, 3, 0])
    #expect(ReadPixels(bytes, by: ico_pixels_open).rgba == [3, 2, 1, 255])
  }

  @Test("a bitmap with huge sides in its header is refused without allocating memory")
  func sides() {
    var bomb = Self.icon(Self.header(30_000, 60_000, bits: 8))
    // Without the length, the header alone gives the size.
    bomb.replaceSubrange(14..<18, with: [0, 0, 0, 0])
    let error = Decoding(bomb, limits: DecodeLimits(maxPixels: 1_000_000)).error
    #expect(error == .tooManyPixels(width: 30_000, height: 30_000, limit: 1_000_000))
    #expect(Decoding(Self.icon(Self.header(1, 0, bits: 8))).isBroken)
    let long = Self.icon([(0, 32, Self.header(256, 512, bits: 32))])
    #expect(Decoding(long).isBroken)
  }

  /// 10 megapixels, 80 MB of samples.
  private static let largeIcon: [UInt8] = {
    var png = PNGFixture(width: 4000, height: 2500)
    (png.colourType, png.depth) = (6, 16)
    let rows = [UInt8](repeating: 0, count: 2500 * (1 + 8 * 4000))
    let data = PNGFixture.chunk("IDAT", Compressed.deflate(rows))
    return icon([(0, 32, png.start + data + png.end)])
  }()

  @Test("an icon with a large PNG is decoded and rendered in many steps")
  func slices() throws {
    let decoding = Decoding(Self.largeIcon)
    let image = try #require(decoding.description)
    #expect((image.width, image.height) == (4000, 2500))
    #expect(decoding.steps >= 6, "its header, its end, and about 10 ms each in between")
    var waits = 0
    Self.largeIcon.withUnsafeBufferPointer { bytes in
      var fault = CodecFault.none
      guard
        let pixels = ico_pixels_open(
          bytes.baseAddress, bytes.count, CheckedImage(image), 0, 0, &fault)
      else { return }
      defer { pixels.pointee.close(pixels) }
      var row = [UInt8](repeating: 0, count: 4 * 4000)
      while pixels.pointee.rows(pixels, &row, row.count, 1) == PIXELS_NOT_YET { waits += 1 }
    }
    #expect(waits >= 4)
  }

  @Test("an icon with an animated PNG obeys the limits of frames and shows one frame")
  func frames() {
    var animation = AnimatedPNGTests.Animation()
    animation.frames = Array(repeating: AnimatedPNGTests.Frame(), count: 40)
    let icon = Self.icon([(4, 32, animation.bytes)])
    for pieces in [7, .max] {
      let few = Decoding(icon, pieces: pieces, limits: DecodeLimits(maxFrames: 39))
      #expect(few.error == .tooManyFrames(limit: 39))
      let small = Decoding(icon, pieces: pieces, limits: DecodeLimits(maxPixels: 12))
      #expect(small.error == .tooManyFrames(limit: 16))
      #expect(Decoding(icon, pieces: pieces).description?.frames == 1)
    }
    let shown = ReadPixels(icon, by: ico_pixels_open)
    #expect(shown.fault == CodecFault.none && shown.rgba.count == 4 * 4 * 3)
  }

  @Test("an ICO is decoded only if enabled, and only in sandboxed processes")
  func optional() {
    #expect(!ImageFormat.usual.contains(.ico))
    #expect(ImageFormat.needingIsolation.contains(.ico))
    let usual = Decoding(Self.oldIcon, limits: DecodeLimits(formats: Set(ImageFormat.usual)))
    #expect(usual.error == .unsupportedFormat(name: "ICO"))
    #expect(ImageFormat.ico.contentType == "image/vnd.microsoft.icon")
  }
}
