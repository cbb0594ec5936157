import Foundation

/// Decodes a ThumbHash by its published format.
struct ShownThumbHash {
  private struct Wave {
    var across: Int
    var down: Int
    var height: Double
  }

  /// Compensates for the saturation that rounding removes.
  private static let boost = 1.25

  private var lightness: [Wave] = []
  private var yellowBlue: [Wave] = []
  private var redGreen: [Wave] = []
  private var alpha: [Wave]?
  /// Width divided by height.
  let aspect: Double

  /// Nil if the number of bytes differs from the declared one.
  init?(_ hash: [UInt8]) {
    guard hash.count >= 5 else { return nil }
    let colours = Int(hash[0]) | Int(hash[1]) << 8 | Int(hash[2]) << 16
    let rest = Int(hash[3]) | Int(hash[4]) << 8
    let hasAlpha = colours >> 23 == 1
    let isLandscape = rest >> 15 == 1
    let (long, short) = (hasAlpha ? 5 : 7, rest & 7)
    aspect = isLandscape ? Double(long) / Double(short) : Double(short) / Double(long)

    var start = 5
    if hasAlpha { start += 1 }
    guard hash.count >= start else { return nil }
    var nibbles: [Double] = []
    for byte in hash[start...] { nibbles += [Double(byte & 15), Double(byte >> 4)] }
    var next = 0
    func waves(_ across: Int, _ down: Int, mean: Double, range: Double) -> [Wave]? {
      var waves = [Wave(across: 0, down: 0, height: mean)]
      for v in 0..<down {
        for u in 0..<across where (u > 0 || v > 0) && u * down < across * (down - v) {
          guard next < nibbles.count else { return nil }
          waves.append(Wave(across: u, down: v, height: (nibbles[next] / 7.5 - 1) * range))
          next += 1
        }
      }
      return waves
    }
    let (across, down) = isLandscape ? (long, max(3, short)) : (max(3, short), long)
    guard
      let lightness = waves(
        across, down, mean: Double(colours & 63) / 63, range: Double(colours >> 18 & 31) / 31),
      let yellowBlue = waves(
        3, 3, mean: Double(colours >> 6 & 63) / 31.5 - 1,
        range: Double(rest >> 3 & 63) / 63 * Self.boost),
      let redGreen = waves(
        3, 3, mean: Double(colours >> 12 & 63) / 31.5 - 1,
        range: Double(rest >> 9 & 63) / 63 * Self.boost)
    else { return nil }
    (self.lightness, self.yellowBlue, self.redGreen) = (lightness, yellowBlue, redGreen)
    if hasAlpha {
      alpha = waves(5, 5, mean: Double(hash[5] & 15) / 15, range: Double(hash[5] >> 4) / 15)
      if alpha == nil { return nil }
    }
    guard nibbles.count - next <= 1 else { return nil }
  }

  /// Red, green, blue and alpha at a position. All numbers are from 0 to 1.
  private func colour(_ x: Double, _ y: Double) -> [Double] {
    func value(_ waves: [Wave]) -> Double {
      waves.reduce(0) { sum, wave in
        let factor = wave.across + wave.down > 0 ? 2.0 : 1
        return sum + wave.height * factor * cos(.pi * Double(wave.across) * x)
          * cos(.pi * Double(wave.down) * y)
      }
    }
    let (l, p, q) = (value(lightness), value(yellowBlue), value(redGreen))
    let blue = l - 2.0 / 3 * p
    let red = (3 * l - blue + q) / 2
    return [red, red - q, blue, alpha.map(value) ?? 1].map { min(1, max(0, $0)) }
  }

  /// The mean colors of equal parts.
  func means(columns: Int, rows: Int) -> [[Double]] {
    let samples = 4
    return (0..<rows * columns).map { cell in
      var sum = [0.0, 0, 0, 0]
      for sample in 0..<samples * samples {
        let x =
          (Double(cell % columns) + (Double(sample % samples) + 0.5) / Double(samples))
          / Double(columns)
        let y =
          (Double(cell / columns) + (Double(sample / samples) + 0.5) / Double(samples))
          / Double(rows)
        for (index, level) in colour(x, y).enumerated() { sum[index] += level }
      }
      return sum.map { $0 / Double(samples * samples) }
    }
  }
}
