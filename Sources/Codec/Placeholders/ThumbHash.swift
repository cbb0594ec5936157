internal import CCodecs
internal import Glibc
internal import Jobs

/// Encodes an image's lowest frequencies in 5 to 25 bytes, with its proportions and transparency
/// (https://evanw.github.io/thumbhash/).
///
/// - Bytes 0 to 2: the means of lightness L, of P (yellow to blue) and of Q (red to green), the range of L's other
///   coefficients, and whether there is alpha.
/// - Bytes 3 and 4: the number of L's coefficients along the shorter side, the ranges of P and Q, and which side is
///   longer.
/// - One more byte if there is alpha: its mean and range.
/// - The coefficients, four bits each.
enum ThumbHash {
  /// - Parameter image: at most 100 pixels a side.
  static func encode(_ image: Thumbnail) -> [UInt8] {
    let hasAlpha = image.pixels.contains { $0.alpha < 1 }
    let (width, height) = (image.width, image.height)
    // Lightness has fewer coefficients if alpha needs some of the bits.
    let limit = Double(hasAlpha ? 5 : 7)
    let longest = Double(max(width, height))
    let across = max(1, Int((limit * Double(width) / longest).rounded()))
    let down = max(1, Int((limit * Double(height) / longest).rounded()))

    let planes = Planes(image)
    let waves = (across: Channel.waves(over: width), down: Channel.waves(over: height))
    func channel(_ samples: [Double], _ across: Int, _ down: Int) -> Channel {
      Channel(samples, waves.across, waves.down, across: across, down: down)
    }
    let lightness = channel(planes.lightness, max(3, across), max(3, down))
    let yellowBlue = channel(planes.yellowBlue, 3, 3)
    let redGreen = channel(planes.redGreen, 3, 3)
    let alpha = hasAlpha ? channel(planes.alpha, 5, 5) : nil

    var head: UInt64 = 0
    var position: UInt64 = 0
    func append(_ value: Int, bits: UInt64) {
      head |= UInt64(value) << position
      position += bits
    }
    append(level(lightness.mean, 63), bits: 6)
    append(level(yellowBlue.mean / 2 + 0.5, 63), bits: 6)
    append(level(redGreen.mean / 2 + 0.5, 63), bits: 6)
    append(level(lightness.range, 31), bits: 5)
    append(hasAlpha ? 1 : 0, bits: 1)
    append(width > height ? down : across, bits: 3)
    append(level(yellowBlue.range, 63), bits: 6)
    append(level(redGreen.range, 63), bits: 6)
    append(width > height ? 1 : 0, bits: 1)
    if let alpha {
      append(level(alpha.mean, 15), bits: 4)
      append(level(alpha.range, 15), bits: 4)
    }
    let bytes = (0..<position / 8).map { UInt8(truncatingIfNeeded: head >> ($0 * 8)) }
    return bytes + packed([lightness, yellowBlue, redGreen, alpha].compactMap { $0 })
  }

  /// Maps 0...1 to one of `top` + 1 levels. Halves are rounded away from zero.
  private static func level(_ value: Double, _ top: Double) -> Int {
    Int(min(top, max(0, (value * top).rounded())))
  }

  /// Packs two coefficients into a byte, the first in the lower half.
  private static func packed(_ channels: [Channel]) -> [UInt8] {
    let levels = channels.flatMap(\.others).map { UInt8(level($0, 15)) }
    return stride(from: 0, to: levels.count, by: 2).map { index in
      levels[index] | (index + 1 < levels.count ? levels[index + 1] << 4 : 0)
    }
  }
}

/// The channels of an image. Transparent pixels are painted over the image's mean color.
private struct Planes {
  let lightness: [Double]
  let yellowBlue: [Double]
  let redGreen: [Double]
  let alpha: [Double]

  init(_ image: Thumbnail) {
    var mean = Thumbnail.Pixel(red: 0, green: 0, blue: 0, alpha: 0)
    for pixel in image.pixels { mean.add(pixel) }
    let visible = max(mean.alpha, .leastNonzeroMagnitude)
    mean = .init(
      red: mean.red / visible, green: mean.green / visible, blue: mean.blue / visible, alpha: 1)
    let painted = image.pixels.map { pixel in
      Thumbnail.Pixel(
        red: mean.red + (pixel.red - mean.red) * pixel.alpha,
        green: mean.green + (pixel.green - mean.green) * pixel.alpha,
        blue: mean.blue + (pixel.blue - mean.blue) * pixel.alpha, alpha: pixel.alpha)
    }
    lightness = painted.map { ($0.red + $0.green + $0.blue) / 3 }
    yellowBlue = painted.map { ($0.red + $0.green) / 2 - $0.blue }
    redGreen = painted.map { $0.red - $0.green }
    alpha = painted.map(\.alpha)
  }
}

/// The low frequencies of one channel, computed by a cosine transform.
private struct Channel {
  var mean = 0.0
  /// The largest absolute value of the other coefficients.
  var range = 0.0
  /// The other coefficients, row by row of a triangle, scaled so that -range is 0 and range is 1.
  var others: [Double] = []

  /// - Parameters:
  ///   - rows: the waves of each frequency along a row.
  ///   - columns: the waves of each frequency along a column.
  init(_ samples: [Double], _ rows: [Wave], _ columns: [Wave], across: Int, down: Int) {
    // Transforms the rows first: the result is used for all vertical frequencies.
    let (width, height) = (rows[0].count, columns[0].count)
    let lines = rows.prefix(across).map { wave in
      // Adds to all rows in each pass. Summing one row at a time is slow, as each addition waits for the previous
      // one.
      var sums = [Double](repeating: 0, count: height)
      for x in 0..<width {
        let factor = wave[x]
        for y in 0..<height { sums[y] += samples[y * width + x] * factor }
      }
      return sums
    }
    for (v, wave) in columns.prefix(down).enumerated() {
      for u in 0..<across where u * down < across * (down - v) {
        var sum = 0.0
        for y in 0..<height { sum += lines[u][y] * wave[y] }
        others.append(sum / Double(width * height))
      }
    }
    mean = others.removeFirst()
    range = others.reduce(0) { max($0, abs($1)) }
    if range > 0 { others = others.map { 0.5 + 0.5 / range * $0 } }
  }

  /// The cosines of one frequency at each position of a side.
  typealias Wave = [Double]

  /// The waves of all frequencies that any channel uses.
  static func waves(over count: Int) -> [Wave] {
    (0..<7).map { frequency in
      (0..<count).map { cos(.pi / Double(count) * Double(frequency) * (Double($0) + 0.5)) }
    }
  }
}

/// An upright image of at most 32 pixels a side. The LQIP is computed from it.
struct Thumbnail {
  /// Channels from 0 to 1, alpha not premultiplied.
  struct Pixel {
    var red, green, blue, alpha: Double
  }

  let width: Int
  let height: Int
  /// Top row first.
  let pixels: [Pixel]

  init(width: Int, height: Int, pixels: [Pixel]) {
    (self.width, self.height, self.pixels) = (width, height, pixels)
  }

  /// Makes it from the thumbnail that the reader collected. Nil if the image is not completely decoded yet.
  init?(_ picture: CodecImageInfo) {
    guard let bytes = picture.thumbnail else { return nil }
    let (columns, rows) = (Int(picture.thumbnailColumns), Int(picture.thumbnailRows))
    let isTurned = picture.orientation > 4
    let (width, height) = isTurned ? (rows, columns) : (columns, rows)
    let upright = [UInt8](unsafeUninitializedCapacity: 4 * width * height) { buffer, count in
      orientation_rows(
        bytes, UInt32(columns), UInt32(rows), 4, Int32(picture.orientation), 0, Int32(height),
        buffer.baseAddress, 4 * width)
      count = 4 * width * height
    }
    let pixels = upright.withUnsafeBufferPointer { upright in
      upright.baseAddress.map { start in (0..<width * height).map { Pixel(start + 4 * $0) } } ?? []
    }
    self.init(width: width, height: height, pixels: pixels)
  }

  var lqip: LQIP {
    LQIP(thumbHash: ThumbHash.encode(self), dominantColor: dominantColor)
  }

  /// Red, green and blue of the most common color. The colors are divided into 512 equal bins; the result is the mean
  /// of the fullest bin. Pixels count by their opacity.
  var dominantColor: [UInt8] {
    let nothing = Pixel(red: 0, green: 0, blue: 0, alpha: 0)
    var bins = [Pixel](repeating: nothing, count: 512)
    for pixel in pixels { bins[pixel.bin].add(pixel) }
    let fullest = bins.max { $0.alpha < $1.alpha }
    guard let sum = fullest, sum.alpha > 0 else { return [0, 0, 0] }
    return [sum.red, sum.green, sum.blue].map { UInt8(min(255, ($0 / sum.alpha * 255).rounded())) }
  }
}

extension Thumbnail.Pixel {
  init(_ rgba: UnsafePointer<UInt8>) {
    self.init(
      red: Double(rgba[0]) / 255, green: Double(rgba[1]) / 255, blue: Double(rgba[2]) / 255,
      alpha: Double(rgba[3]) / 255)
  }

  /// The index of the bin, from eighths of red, green and blue.
  fileprivate var bin: Int {
    Int(red * 7.999) << 6 | Int(green * 7.999) << 3 | Int(blue * 7.999)
  }

  /// Adds a color, weighted by its opacity.
  mutating func add(_ pixel: Self) {
    red += pixel.red * pixel.alpha
    green += pixel.green * pixel.alpha
    blue += pixel.blue * pixel.alpha
    alpha += pixel.alpha
  }
}
