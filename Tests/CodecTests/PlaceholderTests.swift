import Codec
import Foundation
import Jobs
import TestSupport
import Testing

@Suite("A placeholder image")
struct PlaceholderTests {
  private static func drawn(_ placeholder: Placeholder, _ variant: Variant) throws -> [UInt8] {
    let rendering = StreamingRenderer().draw(placeholder, as: variant)
    while true {
      if let file = try rendering.file() { return file }
    }
  }

  @Test(
    "a placeholder has the requested size and format",
    arguments: OutputFormat.allCases, [[1, 1], [480, 360], [64, 700], [37, 2]])
  func whole(format: OutputFormat, size: [Int]) throws {
    for placeholder in Placeholder.allCases {
      let file = try Self.drawn(placeholder, Variant(format, size[0], size[1]))
      let image = try Decoding(file).result.get()
      #expect(image.format.rawValue == format.rawValue)
      #expect([image.width, image.height] == size)
    }
  }

  @Test(
    "a placeholder has a sign for its kind in the middle, but none in small images")
  func signs() async throws {
    let sizes = [(320, 240), (32, 32), (15, 400)]
    let files = try sizes.flatMap { width, height in
      try Placeholder.allCases.map { try Self.drawn($0, Variant(.png, width, height)) }
    }
    let shown = try await ShownPixels.of(files).map { try #require($0) }
    let inked = shown.map { picture in
      // The background is the same within a row.
      (0..<picture.height).reduce(0) { count, y in
        let row = Array(picture.pixels[y * picture.width * 4..<(y + 1) * picture.width * 4])
        return count + (0..<picture.width).count { row[$0 * 4] != row[0] }
      }
    }
    #expect(inked[0] > 1_500 && inked[1] > 1_500 && files[0] != files[1])
    #expect(inked[2] > 20 && inked[3] > 20 && files[2] != files[3])
    #expect(inked[4] == 0 && inked[5] == 0)
  }

  @Test("a placeholder has the requested background, with darker or lighter ink on it")
  func grounds() async throws {
    let colours = [
      Variant.Color(red: 20, green: 30, blue: 60), Variant.Color(red: 250, green: 240, blue: 200),
    ]
    let files = try colours.map { try Self.drawn(.loading, Variant(.png, 90, 90, background: $0)) }
    let shown = try await ShownPixels.of(files).map { try #require($0) }
    for (picture, colour) in zip(shown, colours) {
      let greens = stride(from: 1, to: picture.pixels.count, by: 4).map { Int(picture.pixels[$0]) }
      let middle = greens[45 * 90]
      #expect(middle == Int(colour.green))
      let isDark = colour.green < 128
      #expect((greens.max() ?? 0) > middle + 40 || !isDark)
      #expect((greens.min() ?? 0) < middle - 40 || isDark)
    }
  }

  @Test("a placeholder's memory is known before drawing, and invalid sizes are refused")
  func reckoned() {
    let renderer = StreamingRenderer()
    #expect(renderer.memory(forDrawing: Variant(.png, 400, 300)) > 400 * 300)
    #expect(renderer.memory(forDrawing: Variant(.jpeg, 1 << 24, 1 << 24)) > 1 << 40)
    #expect(throws: CodecError.self) { try Self.drawn(.loading, Variant(.webp, 20_000, 2)) }
  }
}
