internal import CCodecs
internal import Jobs

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
