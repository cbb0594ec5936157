import CCodecs
import Codec
import Jobs
import TestSupport
import Testing

@Suite("An AVIF's clean aperture")
struct CroppedAVIFTests {
  struct Crop: Sendable {
    var name: String
    var x: Int, y: Int, width: Int, height: Int
    /// Chroma is interpolated differently at the edges.
    var difference = 0
    var denominator = 1

    var whole: [UInt8] { Fixtures.image(name) }

    /// The fixture with a box for the crop, after the first item's four properties and before its orientation.
    var bytes: [UInt8] {
      get throws {
        var file = whole
        func place(of type: String) throws -> Int {
          try #require(file.firstRange(of: Array(type.utf8))).lowerBound
        }
        func number(at place: Int) -> Int {
          file[place..<place + 4].reduce(0) { $0 << 8 | Int($1) }
        }
        func put(_ value: Int, at place: Int) {
          file.replaceSubrange(
            place..<place + 4, with: PNGFixture.big(UInt32(truncatingIfNeeded: value)))
        }
        let sides = try place(of: "ispe") + 8
        let (across, down) = (
          2 * x + width - number(at: sides), 2 * y + height - number(at: sides + 4)
        )
        let values = [width, denominator, height, 1, across, 2, down, 2]
        let box =
          PNGFixture.big(40) + Array("clap".utf8)
          + values.flatMap { PNGFixture.big(UInt32(truncatingIfNeeded: $0)) }

        let list = try place(of: "ipco") - 4
        let end = list + number(at: list)
        var (at, count) = (list + 8, 1)
        while at < end { (at, count) = (at + number(at: at), count + 1) }
        file.insert(contentsOf: box, at: end)
        let first = try place(of: "ipma") + 14
        file[first] += 1
        file.insert(0x80 | UInt8(count), at: first + 5)
        for (type, grown) in [("meta", 41), ("iprp", 41), ("ipco", 40), ("ipma", 1)] {
          let head = try place(of: type) - 4
          put(number(at: head) + grown, at: head)
        }
        let items = try place(of: "iloc") + 10
        for item in 0..<Int(file[items + 1]) {
          let offset = items + 2 + 14 * item + 6
          put(number(at: offset) + 41, at: offset)
        }
        return file
      }
    }
  }

  private static let inChroma = Crop(
    name: "small.avif", x: 8, y: 4, width: 12, height: 8, difference: 20)

  @Test(
    "an AVIF shows its clean aperture, before it is turned",
    arguments: [
      inChroma, Crop(name: "alpha.avif", x: 11, y: 7, width: 33, height: 20),
      Crop(name: "deep.avif", x: 10, y: 5, width: 31, height: 30),
      Crop(name: "grey.avif", x: 1, y: 1, width: 9, height: 9),
      Crop(name: "turned-6.avif", x: 3, y: 2, width: 7, height: 4),
    ])
  func shown(crop: Crop) throws { try Self.expectShown(crop) }

  private static func expectShown(_ crop: Crop) throws {
    let file = try crop.bytes
    let uncropped = try #require(Decoding(crop.whole).description)
    var expected = uncropped
    (expected.width, expected.height) = (crop.width, crop.height)
    for pieces in [7, .max] {
      #expect(Decoding(file, pieces: pieces).description == expected)
    }
    #expect(Decoding(file).lqip != Decoding(crop.whole).lqip)

    let (whole, pixels) = (
      ReadPixels(crop.whole, by: avif_pixels_open), ReadPixels(file, by: avif_pixels_open)
    )
    #expect((pixels.width, pixels.height) == (crop.width, crop.height))
    var cut: [UInt8] = []
    for y in crop.y..<crop.y + crop.height {
      let start = 4 * (y * whole.width + crop.x)
      cut += whole.rgba[start..<start + 4 * crop.width]
    }
    try #require(pixels.rgba.count == cut.count)
    let far = zip(pixels.rgba, cut).map { abs(Int($0) - Int($1)) }.max()
    #expect(far! <= crop.difference)
    // A reader with the uncropped description finds another image.
    #expect(ReadPixels(file, as: uncropped, by: avif_pixels_open).fault == .broken)

    let variant = try #require(
      Decoding(Rendered(file, as: Variant(.png)).result.get()).description)
    let isTurned = expected.orientation > 4
    #expect(variant.width == (isTurned ? crop.height : crop.width))
    #expect(variant.height == (isTurned ? crop.width : crop.height))
  }

  @Test(
    "a clean aperture that breaks the rules is ignored",
    arguments: [
      Crop(name: "small.avif", x: 1, y: 0, width: 12, height: 8),
      Crop(name: "small.avif", x: 16, y: 4, width: 12, height: 8),
      Crop(name: "small.avif", x: 0, y: 0, width: 0, height: 8),
      Crop(name: "small.avif", x: 8, y: 4, width: 12, height: 8, denominator: 0),
    ])
  func passedOver(crop: Crop) throws { try Self.expectPassedOver(crop) }

  @Test("an odd clean aperture is applied from libavif 1.0 on, and ignored before")
  func oddWidth() throws {
    let crop = Crop(name: "small.avif", x: 0, y: 0, width: 11, height: 8, difference: 20)
    let isShown = !String(cString: codecs_avif_version()).hasPrefix("0.")
    if isShown { try Self.expectShown(crop) } else { try Self.expectPassedOver(crop) }
  }

  private static func expectPassedOver(_ crop: Crop) throws {
    let file = try crop.bytes
    #expect(try Decoding(file).result.get() == Decoding(crop.whole).result.get())
    #expect(
      ReadPixels(file, by: avif_pixels_open).rgba
        == ReadPixels(crop.whole, by: avif_pixels_open).rgba)
  }

  @Test("an AVIF that shows a small part is refused: the rest takes memory too")
  func smallPart() throws {
    var file = try Crop(name: "small.avif", x: 4, y: 0, width: 16, height: 16).bytes
    let image = try #require(Decoding(file).description)
    let sides = try #require(file.firstRange(of: Array("ispe".utf8))).upperBound + 4
    // Version and flags, then 32 bits a side.
    file.replaceSubrange(sides..<sides + 8, with: [0, 0, 0x10, 0, 0, 0, 0x10, 0])
    let refused = Decoding(file)
    #expect(refused.error == .unsupportedFormat(name: "AVIF (the crop is too small)"))
    #expect(refused.headers.isEmpty)
    #expect(ReadPixels(file, as: image, by: avif_pixels_open).fault == .broken)
  }

  @Test("a cropped AVIF that is cut is refused, and a damaged one stays within its limits")
  func harmed() throws {
    let whole = try Self.inChroma.bytes
    for count in 13..<whole.count {
      let decoding = Decoding(Array(whole.prefix(count)), pieces: count % 2 == 0 ? 9 : .max)
      #expect(decoding.error == .cutShort, "\(count) bytes: \(decoding.result)")
    }
    let image = try Decoding(whole).result.get()
    var random = SeededRandom(5)
    for _ in 0..<300 {
      let mutant = random.mutant(of: whole)
      let decoding = Decoding(mutant, pieces: 50, limits: HostileTests.limits)
      #expect(decoding.description == nil || decoding.headers.count == 1)
      let rendered = Rendered(mutant, as: Variant(.png, 2), described: image)
      if let file = rendered.file { #expect(Decoding(file).description?.width == 2) }
    }
  }
}
