import Foundation
package import Jobs

/// Test images. Files are created by Tests/Fixtures/make-fixtures.py.
package enum Fixtures {
  /// A file of Tests/Fixtures/images, such as `photo.jpg`.
  package static func image(_ name: String) -> [UInt8] {
    guard let data = FileManager.default.contents(atPath: folder + "/" + name) else {
      fatalError("no fixture \(name): run Tests/Fixtures/make-fixtures.py")
    }
    return Array(data)
  }

  /// Another decoder's rendering of a file that Pillow can't decode, as a file that Pillow can decode.
  package static func shown(_ name: String) -> [UInt8] { image("../shown/" + name + ".png") }

  /// Whether that rendering exists.
  package static func hasShown(_ name: String) -> Bool {
    FileManager.default.fileExists(atPath: folder + "/../shown/" + name + ".png")
  }

  /// A 480 x 320 baseline JPEG of 23 kB.
  package static let jpeg = image("photo.jpg")
  /// The same image as a progressive JPEG.
  package static let progressiveJPEG = image("photo-progressive.jpg")
  /// A 160 x 120 PNG of 28 kB.
  package static let png = image("photo.png")
  /// A JPEG of a few hundred bytes, 24 x 16.
  package static let smallJPEG = image("small.jpg")
  /// A PNG of 300 bytes, 12 x 9.
  package static let smallPNG = image("small.png")
  /// The same in 70 kB. Images of this size are stored in a file, not in the database.
  package static let filedPNG: [UInt8] =
    smallPNG.dropLast(12) + PNGFixture.chunk("teSt", [UInt8](repeating: 7, count: 70_000))
    + smallPNG.suffix(12)

  /// Every file's name and Pillow's facts about it.
  package static let known: [(name: String, description: ImageDescription)] =
    facts.sorted { $0.key < $1.key }.map { ($0.key, $0.value.description) }

  private static let facts: [String: Facts] = {
    let facts = try? JSONDecoder().decode([String: Facts].self, from: Data(image("facts.json")))
    guard let facts else { fatalError("facts.json is not as make-fixtures.py writes it") }
    return facts
  }()

  /// CRC-32 of the first frame's RGBA as decoded by Pillow, with transparent pixels set to 0. Only for files whose pixels do not
  /// depend on the decoder.
  package static let pixelSums: [String: UInt32] = facts.compactMapValues(\.pixels)

  private static let folder =
    String(#filePath.dropLast("TestSupport/Fixtures.swift".count))
    + "Fixtures/images"

  private struct Facts: Decodable {
    var format: ImageFormat
    var width, height, orientation, frames: Int
    var progressive, has_alpha: Bool
    var pixels: UInt32?
    var extra_memory: Int?

    var description: ImageDescription {
      var description = ImageDescription(format: format, width: width, height: height)
      description.orientation = orientation
      description.isProgressive = progressive
      description.hasAlpha = has_alpha
      description.frames = frames
      description.extraMemory = extra_memory
      return description
    }
  }
}
