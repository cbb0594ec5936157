import Foundation

/// A picture as Pillow decodes it.
public struct ShownPixels: Sendable {
  private struct Facts: Decodable {
    var format: String
    var width, height, orientation: Int
    var progressive: Bool
  }

  /// `JPEG` or `PNG`.
  public let format: String
  /// In pixels, as stored.
  public let width: Int
  /// In pixels, as stored.
  public let height: Int
  /// EXIF's; 1 where there is none.
  public let orientation: Int
  /// A progressive JPEG.
  public let isProgressive: Bool
  /// RGBA, top row first.
  public let pixels: [UInt8]

  /// Nil where Pillow can't decode the file.
  public init?(_ file: [UInt8]) async throws {
    let script = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .appending(path: "Fixtures/show-pixels.py")
    let folder = FileManager.default.temporaryDirectory
    let input = folder.appending(path: "pixels-\(UUID().uuidString)")
    // No pipe: another test's child could hold it open.
    let output = input.appendingPathExtension("out")
    defer { for file in [input, output] { try? FileManager.default.removeItem(at: file) } }
    try Data(file).write(to: input)
    try Data().write(to: output)
    let process = Process()
    process.executableURL = URL(filePath: "/usr/bin/python3")
    process.arguments = [script.path]
    process.standardInput = try FileHandle(forReadingFrom: input)
    process.standardError = FileHandle.nullDevice
    process.standardOutput = try FileHandle(forWritingTo: output)
    try await withCheckedThrowingContinuation { (done: CheckedContinuation<Void, any Error>) in
      process.terminationHandler = { _ in done.resume() }
      do { try process.run() } catch { done.resume(throwing: error) }
    }
    let answer = try Data(contentsOf: output)
    guard process.terminationStatus == 0, let end = answer.firstIndex(of: UInt8(ascii: "\n")) else {
      return nil
    }
    let facts = try JSONDecoder().decode(Facts.self, from: answer[..<end])
    (format, width, height) = (facts.format, facts.width, facts.height)
    (orientation, isProgressive) = (facts.orientation, facts.progressive)
    pixels = Array(answer[(end + 1)...])
  }

  /// The peak signal-to-noise ratio against a picture of the same size, in dB; infinite where they are equal.
  public func likeness(to other: ShownPixels) -> Double {
    precondition(pixels.count == other.pixels.count, "pictures of other sizes")
    var sum = 0
    pixels.withUnsafeBufferPointer { ours in
      other.pixels.withUnsafeBufferPointer { theirs in
        for index in ours.indices {
          let difference = Int(ours[index]) - Int(theirs[index])
          sum += difference * difference
        }
      }
    }
    return 10 * log10(255 * 255 * Double(pixels.count) / Double(sum))
  }

  /// The mean colours of equal parts, RGBA from 0 to 1, alpha not premultiplied.
  public func means(columns: Int, rows: Int) -> [[Double]] {
    (0..<rows * columns).map { cell in
      let (column, row) = (cell % columns, cell / columns)
      var sums = [0.0, 0, 0, 0]
      var count = 0.0
      for y in row * height / rows..<max(row * height / rows + 1, (row + 1) * height / rows) {
        for x in column * width
          / columns..<max(
            column * width / columns + 1, (column + 1) * width / columns)
        {
          let at = 4 * (y * width + x)
          let alpha = Double(pixels[at + 3]) / 255
          for channel in 0..<3 { sums[channel] += Double(pixels[at + channel]) / 255 * alpha }
          sums[3] += alpha
          count += 1
        }
      }
      let alpha = sums[3]
      return (0..<3).map { alpha > 0 ? sums[$0] / alpha : 0 } + [alpha / count]
    }
  }
}
