internal import Glibc

/// A picture's lowest frequencies in 5 to 25 bytes, with its proportions and transparency (https://evanw.github.io/thumbhash/).
///
/// Bytes 0 to 2 hold the mean of the lightness L, of P (yellow against blue) and of Q (red against green), the range of
/// L's other coefficients and whether there is alpha; bytes 3 and 4 the number of L's coefficients along the shorter
/// side, the ranges of P and Q and which side is longer. With alpha its mean and range follow in a byte. Then come the
/// coefficients, four bits each.
enum ThumbHash {
  /// - Parameter picture: of at most 100 pixels a side.
  static func encode(_ picture: TinyPicture) -> [UInt8] {
    let hasAlpha = picture.pixels.contains { $0.alpha < 1 }
    let (width, height) = (picture.width, picture.height)
    // Fewer of lightness where some bits are for alpha.
    let limit = Double(hasAlpha ? 5 : 7)
    let longest = Double(max(width, height))
    let across = max(1, Int((limit * Double(width) / longest).rounded()))
    let down = max(1, Int((limit * Double(height) / longest).rounded()))

    let planes = Planes(picture)
    func channel(_ samples: [Double], _ across: Int, _ down: Int) -> Channel {
      Channel(samples, width: width, height: height, across: across, down: down)
    }
    let lightness = channel(planes.lightness, max(3, across), max(3, down))
    let yellowBlue = channel(planes.yellowBlue, 3, 3)
    let redGreen = channel(planes.redGreen, 3, 3)
    let alpha = hasAlpha ? channel(planes.alpha, 5, 5) : nil

    var head: UInt64 = 0
    var position: UInt64 = 0
    func put(_ value: Int, bits: UInt64) {
      head |= UInt64(value) << position
      position += bits
    }
    put(level(lightness.mean, 63), bits: 6)
    put(level(yellowBlue.mean / 2 + 0.5, 63), bits: 6)
    put(level(redGreen.mean / 2 + 0.5, 63), bits: 6)
    put(level(lightness.range, 31), bits: 5)
    put(hasAlpha ? 1 : 0, bits: 1)
    put(width > height ? down : across, bits: 3)
    put(level(yellowBlue.range, 63), bits: 6)
    put(level(redGreen.range, 63), bits: 6)
    put(width > height ? 1 : 0, bits: 1)
    if let alpha {
      put(level(alpha.mean, 15), bits: 4)
      put(level(alpha.range, 15), bits: 4)
    }
    let bytes = (0..<position / 8).map { UInt8(truncatingIfNeeded: head >> ($0 * 8)) }
    return bytes + packed([lightness, yellowBlue, redGreen, alpha].compactMap { $0 })
  }

  /// 0 to 1 as one of `top` + 1 levels; halves away from zero.
  private static func level(_ value: Double, _ top: Double) -> Int {
    Int(min(top, max(0, (value * top).rounded())))
  }

  /// Two coefficients a byte, the first in the lower half.
  private static func packed(_ channels: [Channel]) -> [UInt8] {
    let levels = channels.flatMap(\.others).map { UInt8(level($0, 15)) }
    return stride(from: 0, to: levels.count, by: 2).map { index in
      levels[index] | (index + 1 < levels.count ? levels[index + 1] << 4 : 0)
    }
  }
}

/// The channels of a picture, painted over its mean colour where it is transparent.
private struct Planes {
  var lightness: [Double] = []
  var yellowBlue: [Double] = []
  var redGreen: [Double] = []
  var alpha: [Double] = []

  init(_ picture: TinyPicture) {
    var mean = TinyPicture.Pixel(red: 0, green: 0, blue: 0, alpha: 0)
    for pixel in picture.pixels { mean.add(pixel) }
    let visible = max(mean.alpha, .leastNonzeroMagnitude)
    mean = .init(
      red: mean.red / visible, green: mean.green / visible, blue: mean.blue / visible, alpha: 1)
    for pixel in picture.pixels {
      let red = mean.red + (pixel.red - mean.red) * pixel.alpha
      let green = mean.green + (pixel.green - mean.green) * pixel.alpha
      let blue = mean.blue + (pixel.blue - mean.blue) * pixel.alpha
      lightness.append((red + green + blue) / 3)
      yellowBlue.append((red + green) / 2 - blue)
      redGreen.append(red - green)
      alpha.append(pixel.alpha)
    }
  }
}

/// The low frequencies of one channel, by a cosine transform.
private struct Channel {
  var mean = 0.0
  /// The largest of the other coefficients, without its sign.
  var range = 0.0
  /// The others, row by row of a triangle, as parts of the range: -range is 0 and range is 1.
  var others: [Double] = []

  init(_ samples: [Double], width: Int, height: Int, across: Int, down: Int) {
    // Along the rows first: what that gives serves all frequencies down.
    let lines = (0..<across).map { frequency in
      let wave = Self.wave(frequency, width)
      return (0..<height).map { y in
        var sum = 0.0
        for x in 0..<width { sum += samples[y * width + x] * wave[x] }
        return sum
      }
    }
    for v in 0..<down {
      let wave = Self.wave(v, height)
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

  private static func wave(_ frequency: Int, _ count: Int) -> [Double] {
    (0..<count).map { cos(.pi / Double(count) * Double(frequency) * (Double($0) + 0.5)) }
  }
}
