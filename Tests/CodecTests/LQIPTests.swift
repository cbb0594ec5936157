import CCodecs
import Codec
import Foundation
import Jobs
import TestSupport
import Testing

@Suite("An LQIP")
struct LQIPTests {
  @Test("an LQIP looks like its image", arguments: Fixtures.known.map(\.name))
  func alike(name: String) async throws {
    let file = Fixtures.image(name)
    let lqip = try #require(Decoding(file, pieces: 1000).lqip)
    let whole = try #require(try await shown(file, name))
    let hash = try #require(ShownThumbHash(lqip.thumbHash))
    #expect(5...25 ~= lqip.thumbHash.count)
    let isTurned = whole.orientation > 4
    let aspect = Double(whole.width) / Double(whole.height)
    // The hash stores proportions in a few steps.
    #expect(abs(log(hash.aspect / (isTurned ? 1 / aspect : aspect))) < 0.45, "\(hash.aspect)")
    // The mean of each eighth of the sides, as the eye would blur them.
    let expected = whole.upright(whole.means(columns: 8, rows: 8), columns: 8, rows: 8)
    let differences = zip(expected, hash.means(columns: 8, rows: 8)).map { cell, shown in
      let difference = zip(cell, shown).prefix(3).map { abs($0 - $1) }.max()! * cell[3]
      return max(difference, abs(cell[3] - shown[3]))
    }
    #expect(differences.reduce(0, +) / 64 < 0.15, "\(differences)")
  }

  /// The pixels that Pillow shows. It can't decode AVIF, JPEG XL and HEIC; for these, the pixels from their
  /// libraries.
  private func shown(_ file: [UInt8], _ name: String) async throws -> ShownPixels? {
    let open: OpenPixels? =
      [
        "avif": avif_pixels_open, "jxl": jxl_pixels_open, "heic": heic_pixels_open,
      ][
        name.split(separator: ".").last.map(String.init) ?? ""]
    guard let open else { return try await ShownPixels(file) }
    let known = Fixtures.known.first { $0.name == name }?.description
    return ReadPixels(file, by: open).shown(orientation: known?.orientation ?? 0)
  }

  @Test("an LQIP shows the upright image", arguments: 1...8)
  func upright(orientation: Int) throws {
    var png = PNGFixture(width: 64, height: 32)
    png.before = [
      PNGFixture.chunk(
        "eXIf", EXIFFixture.tiff(orientation: UInt16(orientation), isBigEndian: true))
    ]
    // As stored, red is at the left and green at the top.
    let (file, _) = png.file { x, y in [x < 32 ? 240 : 10, y < 16 ? 240 : 10, 60] }
    let lqip = try #require(Decoding(file).lqip)
    let hash = try #require(ShownThumbHash(lqip.thumbHash))
    let cells = hash.means(columns: 2, rows: 2)
    var stored: [[Double]] = []
    for cell in 0..<4 {
      stored.append([cell % 2 == 0 ? 0.94 : 0.04, cell / 2 == 0 ? 0.94 : 0.04, 0.24, 1])
    }
    let expected = orient(stored, columns: 2, rows: 2, orientation)
    for (cell, shown) in zip(expected, cells) {
      for channel in 0..<2 { #expect(abs(cell[channel] - shown[channel]) < 0.2, "\(cells)") }
    }
    #expect((hash.aspect > 1) == (orientation <= 4))
  }

  @Test("the LQIP of an image of one color has that color, even for one pixel")
  func flat() throws {
    for (width, height) in [(1, 1), (3, 2), (1, 40), (200, 7), (90, 90)] as [(UInt32, UInt32)] {
      for isInterlaced in [false, true] {
        var png = PNGFixture(width: width, height: height)
        png.isInterlaced = isInterlaced
        let lqip = try #require(
          Decoding(png.file { _, _ in [200, 100, 50] }.bytes).lqip)
        #expect(lqip.dominantColor == [200, 100, 50])
        let hash = try #require(ShownThumbHash(lqip.thumbHash))
        for cell in hash.means(columns: 2, rows: 2) {
          for (shown, level) in zip(cell, [200, 100, 50, 255] as [Double]) {
            #expect(abs(shown - level / 255) < 0.05)
          }
        }
      }
    }
  }

  @Test("the dominant color is the most common visible color")
  func dominant() throws {
    var png = PNGFixture(width: 100, height: 50)
    png.colourType = 6
    // Green is ignored where it is transparent.
    let (file, _) = png.file { x, _ in
      x < 55 ? [0, 250, 0, 10] : x < 85 ? [10, 20, 230, 255] : [250, 250, 250, 255]
    }
    let colour = try #require(Decoding(file).lqip).dominantColor
    for (level, expected) in zip(colour, [10, 20, 230]) { #expect(abs(Int(level) - expected) < 12) }
  }

  @Test("an LQIP is transparent where its image is")
  func transparent() throws {
    var png = PNGFixture(width: 60, height: 60)
    png.colourType = 6
    let (file, _) = png.file { x, _ in [255, 0, 0, x < 30 ? 0 : 255] }
    let lqip = try #require(Decoding(file).lqip)
    let hash = try #require(ShownThumbHash(lqip.thumbHash))
    let cells = hash.means(columns: 4, rows: 1)
    #expect(cells[0][3] < 0.2 && cells[3][3] > 0.8)
    let invisible = png.file { _, _ in [255, 0, 0, 0] }.bytes
    #expect(Decoding(invisible).lqip?.dominantColor == [0, 0, 0])
  }

  @Test("the LQIP of a CMYK JPEG is the same with and without Adobe's marker")
  func inks() throws {
    let whole = Fixtures.image("cmyk.jpg")
    var fixture = JPEGFixture(whole)
    fixture.segments.removeAll { $0.marker == 0xEE }
    let plain = fixture.bytes
    #expect(plain.count < whole.count)
    #expect(Decoding(plain).lqip == Decoding(whole).lqip)
    let variants = try [plain, whole].map { try Rendered($0, as: Variant(.png, 20)).result.get() }
    #expect(variants[0] == variants[1])
  }

  @Test("the LQIP of a 16-bit PNG is the same with and without variants")
  func deep() {
    var png = PNGFixture(width: 40, height: 30)
    png.depth = 16
    let file = png.file { _, _ in [100, 255, 100, 0, 99, 128] }.bytes
    let lqip = Decoding(file).lqip
    #expect(lqip?.dominantColor == [101, 100, 99])
    #expect(Decoding(file, variants: [Variant(.png, 10)]).lqip == lqip)
  }

  @Test("an LQIP is part of an image's stored description")
  func stored() throws {
    var description = ImageDescription(format: .png, width: 1, height: 2)
    description.lqip = LQIP(thumbHash: [1, 2], dominantColor: [3, 4, 5])
    let record = try JSONEncoder().encode(description)
    #expect(try JSONDecoder().decode(ImageDescription.self, from: record) == description)
  }
}

extension ShownPixels {
  fileprivate func upright(_ cells: [[Double]], columns: Int, rows: Int) -> [[Double]] {
    orient(cells, columns: columns, rows: rows, orientation)
  }
}

/// The cells of a square grid, turned by EXIF's orientation.
private func orient(_ cells: [[Double]], columns: Int, rows: Int, _ orientation: Int) -> [[Double]]
{
  precondition(columns == rows)
  let last = rows - 1
  return (0..<rows * columns).map { index in
    let (x, y) = (index % columns, index / columns)
    let (column, row) =
      switch orientation {
      case 2: (last - x, y)
      case 3: (last - x, last - y)
      case 4: (x, last - y)
      case 5: (y, x)
      case 6: (y, last - x)
      case 7: (last - y, last - x)
      case 8: (last - y, x)
      default: (x, y)
      }
    return cells[row * columns + column]
  }
}
