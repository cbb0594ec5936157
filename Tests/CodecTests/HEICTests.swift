import CCodecs
import Codec
import Jobs
import TestSupport
import Testing

@Suite("A HEIC")
struct HEICTests {
  static let known = Fixtures.known.filter { $0.description.format == .heic }

  @Test(
    "a HEIC that is cut anywhere is refused",
    arguments: [
      "small.heic", "alpha.heic", "deep.heic", "clap.heic", "turned-6.heic", "sequence.heic",
      "track.heic",
    ])
  func cutShort(name: String) {
    let whole = Fixtures.image(name)
    for count in 1..<whole.count {
      let pieces = count % 3 == 0 ? 1 : count % 3 == 1 ? 50 : .max
      let decoding = Decoding(Array(whole.prefix(count)), pieces: pieces)
      // Before its brand, it could be any format.
      if count >= 12 { #expect(decoding.error == .cutShort, "\(count) bytes: \(decoding.result)") }
      #expect(decoding.description == nil)
    }
  }

  @Test("a HEIC of 48 tiles that is cut or has a damaged tile is refused")
  func tiles() {
    let whole = Fixtures.image("grid.heic")
    for count in stride(from: 12, to: whole.count, by: 97) {
      let decoding = Decoding(Array(whole.prefix(count)), pieces: 4000)
      #expect(decoding.error == .cutShort || decoding.description != nil, "\(decoding.result)")
      // After the tiles, there are only the thumbnail and Exif.
      if decoding.description != nil { #expect(count > whole.count - 1200) }
    }
    #expect(Decoding(whole, limits: DecodeLimits(maxMemory: 13_000_000)).description != nil)
  }

  /// The coded bytes in a file with one image.
  private func slice(of whole: [UInt8]) -> Range<Int> {
    let start = whole.firstRange(of: Array("mdat".utf8))!.upperBound
    return start..<whole.count
  }

  @Test("a HEIC may have a sequence's brand and end in a box without a length")
  func lastBox() throws {
    let whole = Fixtures.image("small.heic")
    var file = whole
    file.replaceSubrange(try #require(file.firstRange(of: Array("mif1".utf8))), with: "msf1".utf8)
    let data = try #require(file.firstRange(of: Array("mdat".utf8))).lowerBound
    file.replaceSubrange(data - 4..<data, with: [0, 0, 0, 0])
    for pieces in [1, 50, .max] {
      let decoding = Decoding(file, pieces: pieces)
      #expect(decoding == Decoding(whole, pieces: pieces), "\(decoding.result)")
    }
    #expect(
      ReadPixels(file, by: heic_pixels_open).rgba == ReadPixels(whole, by: heic_pixels_open).rgba)
    for count in data..<file.count {
      #expect(Decoding(Array(file.prefix(count))).error == .cutShort, "\(count) bytes")
    }
  }

  @Test(
    "a HEIC whose slice ends too early is broken, not gray there",
    arguments: ["small.heic", "odd.heic", "wide.heic", "deep.heic", "grey.heic"])
  func stops(name: String) {
    let whole = Fixtures.image(name)
    let place = slice(of: whole)
    var broken = 0
    for at in stride(from: place.lowerBound + 40, to: place.upperBound - 1, by: 7) {
      var mutant = whole
      // Codes that no image has; they soon include the end of the slice.
      for index in at..<place.upperBound { mutant[index] = 0xFF }
      if Decoding(mutant).isBroken { broken += 1 }
    }
    #expect(broken > 0)
  }

  @Test(
    "a HEIC has the pixels that libheif shows",
    arguments: known.map(\.name).filter { name in
      // libheif keeps a profile and premultiplied colors.
      Fixtures.hasShown(name) && !["wide.heic", "premultiplied.heic"].contains(name)
    })
  func pixels(name: String) async throws {
    let description = try #require(Self.known.first { $0.name == name }).description
    let file = Fixtures.image(name)
    let pixels = ReadPixels(file, by: heic_pixels_open)
    #expect(pixels.fault == CodecFault.none)
    #expect((pixels.width, pixels.height) == (description.width, description.height))
    #expect(pixels.rgba.count == 4 * description.width * description.height)
    let ours = try #require(try await ShownPixels(Rendered(file, as: Variant(.png)).result.get()))
    let theirs = try #require(try await ShownPixels(Fixtures.shown(name)))
    #expect((ours.width, ours.height) == (theirs.width, theirs.height))
    // Another library interpolates the chroma.
    #expect(ours.likeness(to: theirs) > 30, "\(ours.likeness(to: theirs))")
  }

  @Test("the colors of a HEIC are not premultiplied")
  func premultiplied() {
    let straight = ReadPixels(Fixtures.image("alpha.heic"), by: heic_pixels_open)
    let divided = ReadPixels(Fixtures.image("premultiplied.heic"), by: heic_pixels_open)
    // Both files have the same colors; in one of them they are divided by alpha.
    var differences = 0
    for at in stride(from: 0, to: divided.rgba.count, by: 4) where divided.rgba[at + 3] > 60 {
      let alpha = Int(divided.rgba[at + 3])
      for channel in 0..<3 {
        let expected = min(255, Int(straight.rgba[at + channel]) * 255 / alpha)
        differences = max(differences, abs(expected - Int(divided.rgba[at + channel])))
      }
    }
    #expect(differences < 60)
  }

  @Test("a HEIC has its color profile, and its declared matrix is applied")
  func colours() {
    #expect(!ReadPixels(Fixtures.image("wide.heic"), by: heic_pixels_open).profile.isEmpty)
    let usual = ReadPixels(Fixtures.image("wide.heic"), by: heic_pixels_open)
    let other = ReadPixels(Fixtures.image("bt709.heic"), by: heic_pixels_open)
    #expect(usual.rgba != other.rgba)
  }

  @Test("a HEIC whose boxes and coded image have different sides is broken")
  func sides() {
    var one = HEICFixture()
    one.boxSides = (640, 640)
    #expect(Decoding(one.bytes).isBroken)
    // The sides of a grid whose tiles do not cover it.
    var grid = HEICFixture()
    grid.isGrid = true
    (grid.width, grid.height) = (65_535, 65_535)
    #expect(Decoding(grid.bytes).isBroken)
    (grid.width, grid.height) = (64, 64)
    #expect(Decoding(grid.bytes).headers.count == 1)
  }

  @Test("a HEIC is refused if reading the shown part takes more memory than computed")
  func smallPart() {
    var fixture = HEICFixture()
    (fixture.isGrid, fixture.tileSide, fixture.crop) = (true, 512, (1, 1))
    func decoding(tiles: Int) -> Decoding {
      (fixture.tiles, fixture.width, fixture.height) = (tiles, tiles * 512, 512)
      return Decoding(fixture.bytes)
    }
    /// 0 if it was not opened.
    func openedWidth() -> Int {
      let part = ImageDescription(format: .heic, width: 1, height: 1)
      return ReadPixels(fixture.bytes, as: part, by: heic_pixels_open).width
    }
    let refused = decoding(tiles: 100)
    #expect(refused.error == .unsupportedFormat(name: "HEIC (unsupported kind of HEIF file)"))
    #expect(openedWidth() == 0)
    // As from a camera with 48 megapixels; only its slices are missing.
    #expect(decoding(tiles: 16).headers.count == 1)
    #expect(openedWidth() == 1)
    // A tile is decoded completely, whatever part of it the grid uses.
    (fixture.tileSide, fixture.tiles, fixture.crop) = (4096, 1, nil)
    (fixture.width, fixture.height) = (1, 1)
    #expect(Decoding(fixture.bytes).error == refused.error)
  }

  @Test("a HEIC with huge sides in its parameter set is refused without allocating memory")
  func bomb() {
    for (width, height) in [(16_888, 16_888), (65_535, 65_535), (1 << 30, 8)] {
      var fixture = HEICFixture()
      (fixture.width, fixture.height) = (width, height)
      let decoding = Decoding(fixture.bytes, limits: DecodeLimits(maxPixels: 1_000_000))
      switch decoding.error {
      case .tooManyPixels, .dimensionTooLarge, .unsupportedFormat, .broken: break
      default: Issue.record("\(decoding.result)")
      }
    }
  }

  @Test("a HEIC with more slices than its bytes allow is refused")
  func slices() {
    var fixture = HEICFixture()
    (fixture.width, fixture.height) = (4096, 4096)
    fixture.slices = 400
    let decoding = Decoding(fixture.bytes)
    #expect(decoding.description == nil)
    #expect(decoding.headers.count == 1)
    #expect(decoding.longestStep < .seconds(3))
  }

  @Test("only received bytes count for the allowed number of slices in a HEIC")
  func slicesOfBytesToCome() {
    var fixture = HEICFixture()
    (fixture.isGrid, fixture.tileSide, fixture.tiles) = (true, 4096, 2)
    (fixture.width, fixture.height) = (8192, 4096)
    (fixture.slices, fixture.lastTile) = (20, 30_000_000)
    let decoder = StreamingCodec().makeDecoder(limits: DecodeLimits())
    decoder.append(fixture.bytes)
    #expect {
      while try decoder.step() != .needsBytes {}
    } throws: { error in
      guard case CodecError.tooMuchMemory = error else { return false }
      return true
    }
  }

  @Test("a HEIC shows its thumbnail, turned upright, while the rest is still loading")
  func preview() throws {
    let whole = Fixtures.image("thumbnail.heic")
    let decoder = StreamingCodec().makeDecoder(limits: DecodeLimits())
    decoder.append(Array(whole.prefix(whole.count - 900)))
    while try decoder.step() != .needsBytes {}
    #expect(decoder.hasMoreToShow)
    decoder.beginPreview()
    while try decoder.step() != .needsBytes {}
    let preview = try #require(decoder.takePreview())
    #expect(preview.format == .jpeg)
    #expect(!decoder.hasMoreToShow)
    let shown = try #require(Decoding(preview.bytes).description)
    #expect((shown.width, shown.height, shown.orientation) == (96, 72, 6))
    decoder.append(Array(whole.suffix(900)))
    decoder.finishInput()
    var step = try decoder.step()
    while step == .hasMore || step == .needsBytes { step = try decoder.step() }
    guard case .finished = step else {
      Issue.record("\(step)")
      return
    }
  }

  @Test("a HEIC of an unsupported kind is refused by name")
  func kinds() {
    var whole = Fixtures.image("wide.heic")
    whole.replaceSubrange(whole.firstRange(of: Array("hvc1".utf8))!, with: Array("iovl".utf8))
    guard case .unsupportedFormat(let name) = Decoding(whole).error else {
      Issue.record("an overlay")
      return
    }
    #expect(name?.hasPrefix("HEIC") == true)
  }

  @Test("HEIC is decoded only where it is enabled")
  func refused() {
    #expect(ImageFormat.needingIsolation.contains(.heic))
    let decoder = StreamingCodec(formats: ImageFormat.decodedAnywhere)
      .makeDecoder(limits: DecodeLimits())
    decoder.append(Fixtures.image("small.heic"))
    decoder.finishInput()
    #expect(throws: CodecError.unsupportedFormat(name: "HEIC")) { try decoder.step() }
    let image = ImageDescription(format: .heic, width: 24, height: 16)
    let rendering = StreamingRenderer(of: ImageFormat.decodedAnywhere)
      .render(Fixtures.image("small.heic"), of: image, as: [Variant(.png)])
    #expect(throws: CodecError.unsupportedFormat(name: "HEIC")) { try rendering.step() }
  }
}
