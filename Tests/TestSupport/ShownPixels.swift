import Foundation

/// An image as decoded by Pillow.
package struct ShownPixels: Sendable {
  private struct Facts: Decodable {
    var format: String
    var width, height, orientation: Int
    var progressive: Bool
  }

  /// Pillow's name, such as `JPEG`.
  package let format: String
  /// The stored width in pixels.
  package let width: Int
  /// The stored height in pixels.
  package let height: Int
  /// EXIF's orientation; 1 without EXIF.
  package let orientation: Int
  /// Whether the file is a progressive JPEG.
  package let isProgressive: Bool
  /// RGBA, top row first.
  package let pixels: [UInt8]

  /// Pixels of an image that Pillow can't decode.
  /// - Parameter pixels: RGBA, top row first.
  package init(width: Int, height: Int, orientation: Int, pixels: [UInt8]) {
    precondition(pixels.count == 4 * width * height)
    (self.width, self.height, self.pixels) = (width, height, pixels)
    (self.orientation, format, isProgressive) = (orientation, "", false)
  }

  /// Decodes files with Pillow, in order. Returns nil for files that it can't decode.
  package static func of(_ files: [[UInt8]]) async throws -> [ShownPixels?] {
    let folder = FileManager.default.temporaryDirectory.appending(path: "pixels-\(UUID())")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    // The names are passed in a file, because another test's child could keep a pipe open.
    let output = folder.appending(path: "output")
    var arguments = [output.path]
    for (index, file) in files.enumerated() {
      let input = folder.appending(path: "\(index)")
      try Data(file).write(to: input)
      arguments.append(input.path)
    }
    try await run(arguments)
    var rest = try Data(contentsOf: output)[...]
    return try files.map { _ in try ShownPixels(takenFrom: &rest) }
  }

  /// Returns nil if Pillow can't decode the file.
  package init?(_ file: [UInt8]) async throws {
    guard let only = try await Self.of([file])[0] else { return nil }
    self = only
  }

  private static func run(_ arguments: [String]) async throws {
    let script = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .appending(path: "Fixtures/show-pixels.py")
    try await ChildProcess.run(["/usr/bin/python3", script.path] + arguments)
  }

  private init?(takenFrom output: inout Data.SubSequence) throws {
    let line = output.prefix { $0 != UInt8(ascii: "\n") }
    output = output.dropFirst(line.count + 1)
    guard let facts = try JSONDecoder().decode(Facts?.self, from: line) else { return nil }
    (format, width, height) = (facts.format, facts.width, facts.height)
    (orientation, isProgressive) = (facts.orientation, facts.progressive)
    let count = 4 * facts.width * facts.height
    pixels = Array(output.prefix(count))
    output = output.dropFirst(count)
  }

  /// The peak signal-to-noise ratio against an image of the same size, in dB; infinite if they are equal.
  package func likeness(to other: ShownPixels) -> Double {
    precondition(pixels.count == other.pixels.count, "images of different sizes")
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

  /// The largest difference of a channel's value from an image of the same size: 0 to 255.
  package func worstDifference(to other: ShownPixels) -> Int {
    precondition(pixels.count == other.pixels.count, "images of different sizes")
    return zip(pixels, other.pixels).reduce(0) { max($0, abs(Int($1.0) - Int($1.1))) }
  }

  /// The mean colors of equal parts, RGBA from 0 to 1, alpha not premultiplied.
  package func means(columns: Int, rows: Int) -> [[Double]] {
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
