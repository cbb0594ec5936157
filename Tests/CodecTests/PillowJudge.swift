import Codec
import Foundation
import Glibc
import Jobs
import TestSupport

/// Compares variants with what Pillow makes of the same image. See Tests/Fixtures/variants.py.
enum PillowJudge {
  /// Pillow's result.
  struct Verdict: Decodable {
    var format, mode: String
    var width, height: Int
    var metadata: [String]
    /// In decibels, on black or on white, whichever is lower. 0 means other sides, 99 means equal.
    var psnr: Double
    /// The same for the alpha channel.
    var alpha: Double?
    /// RGBA.
    var centre: [Int]?
  }

  struct Case {
    var name: String
    var variant: Variant
    /// What `cover` must show, upright: left, top, right, bottom.
    var box: [Double]?
  }

  private struct Order: Encodable {
    var source, variant: String
    var width, height: Int
    var box: [Double]?
    var background: [UInt8]?
  }

  private static let folder: String = {
    let folder = NSTemporaryDirectory() + "variants-\(UUID().uuidString)"
    do {
      try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
      _ = try FixtureScript.run("variants.py", "sources", folder)
    } catch { fatalError("Pillow can't write the sources: \(error)") }
    atexit { try? FileManager.default.removeItem(atPath: PillowJudge.folder) }
    return folder
  }()

  /// An image that variants.py writes, or else a fixture.
  static func source(_ name: String) -> [UInt8] {
    guard let data = FileManager.default.contents(atPath: "\(folder)/\(name)") else {
      return Fixtures.image(name)
    }
    return Array(data)
  }

  /// Renders and compares the cases, both with a renderer and during a decode. Uses one Python process for all,
  /// because starting it takes most of the time.
  static func judge(_ cases: [Case]) throws -> [(Case, Verdict)] {
    let id = UUID().uuidString
    var judged: [Case] = []
    var orders: [Order] = []
    for (index, item) in cases.enumerated() {
      let bytes = source(item.name)
      let rendered = Rendered(bytes, as: item.variant)
      var files = [try rendered.result.get()]
      files += Decoding(bytes, pieces: 3_000, variants: [item.variant]).variants.compactMap { $0 }
      let source = "\(folder)/\(id)-\(index)-source"
      try Data(bytes).write(to: URL(fileURLWithPath: source))
      let size = StreamingRenderer().size(of: item.variant, from: rendered.image)
      let colour = item.variant.background.map { [$0.red, $0.green, $0.blue] }
      for (made, file) in files.enumerated() {
        let variant = "\(folder)/\(id)-\(index)-variant-\(made)"
        try Data(file).write(to: URL(fileURLWithPath: variant))
        judged.append(item)
        orders.append(
          Order(
            source: source, variant: variant, width: size.width, height: size.height,
            box: item.box,
            background: colour ?? (item.variant.format == .jpeg ? [255, 255, 255] : nil)))
      }
    }
    let file = "\(folder)/\(id).json"
    try JSONEncoder().encode(orders).write(to: URL(fileURLWithPath: file))
    let verdicts = try JSONDecoder().decode(
      [Verdict].self, from: FixtureScript.run("variants.py", "judge", file))
    return Array(zip(judged, verdicts))
  }
}
