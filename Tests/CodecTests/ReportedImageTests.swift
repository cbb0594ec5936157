import Codec
import Jobs
import TestSupport
import Testing

@Suite("Images from public bug reports")
struct ReportedImageTests {
  @Test(
    "an image from a bug report is decoded as in browsers", arguments: Fixtures.reported.map(\.name)
  )
  func decoded(name: String) throws {
    let image = try #require(Fixtures.reported.first { $0.name == name })
    for pieces in [1, 700, .max] {
      let decoding = Decoding(image.bytes, pieces: pieces)
      #expect(decoding.description == image.description, "\(decoding.result)")
      #expect(decoding.headers.count == 1)
    }
  }

  @Test("an image from a bug report has Pillow's pixels, during decoding and later")
  func pixels() async throws {
    let images = Fixtures.reported
    let expected = try await ShownPixels.of(images.map(\.sound))
    let later = try images.map {
      try Rendered($0.bytes, as: Variant(.png), described: $0.description).result.get()
    }
    let shown = try await ShownPixels.of(later)
    for (index, image) in images.enumerated() {
      let theirs = try #require(expected[index], "\(image.name)")
      let ours = try #require(shown[index])
      #expect((ours.width, ours.height) == (theirs.width, theirs.height), "\(image.name)")
      // JPEG's colors are converted from planes here, with different rounding.
      let tolerance = image.description.format == .jpeg ? 2 : 0
      #expect(ours.worstDifference(to: theirs) <= tolerance, "\(image.name)")
      let made = Decoding(image.bytes, pieces: 700, variants: [Variant(.png)]).variants
      if let file = made.first ?? nil { #expect(file == later[index], "\(image.name)") }
    }
  }

  @Test("a GIF without data for its only pixel is refused")
  func empty() {
    let decoding = Decoding(Fixtures.image("../reported/px26.gif"))
    #expect(decoding.error == .broken(format: .gif, detail: "not enough image data"))
  }

  @Test(
    "chroma at a third of a side is placed as in libjpeg-turbo for all sizes",
    arguments: ["s3x1.jpg", "ramp1x3.jpg"])
  func thirds(name: String) async throws {
    let whole = Fixtures.image("../reported/" + name)
    // All sides with the same number of blocks, so that the data stays the same.
    let (widths, heights): (ClosedRange<UInt16>, ClosedRange<UInt16>) =
      name == "s3x1.jpg" ? (313...336, 233...240) : (89...96, 1...24)
    let sizes =
      widths.map { ($0, heights.upperBound) } + heights.map { (widths.lowerBound, $0) }
    let files = sizes.map { width, height in
      var jpeg = JPEGFixture(whole)
      jpeg.resize(width: width, height: height)
      return jpeg.bytes
    }
    let expected = try await ShownPixels.of(files)
    let shown = try await ShownPixels.of(
      files.map { try Rendered($0, as: Variant(.png)).result.get() })
    for (index, size) in sizes.enumerated() {
      let (theirs, ours) = try (#require(expected[index]), #require(shown[index]))
      #expect((ours.width, ours.height) == (Int(size.0), Int(size.1)))
      #expect(ours.worstDifference(to: theirs) <= 2, "\(size)")
    }
  }
}
