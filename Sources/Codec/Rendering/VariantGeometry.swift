internal import CCodecs
internal import Jobs

/// Which part of an image a variant shows, and at which size.
struct VariantGeometry {
  /// In pixels.
  struct Size: Equatable {
    var width, height: Int
    var turned: Size { Size(width: height, height: width) }
  }

  /// The size of the variant, upright.
  let size: Size
  /// The size of the stored image, not turned upright.
  let stored: Size
  /// The size of the variant before it is turned upright.
  let scaled: Size
  /// The part of the stored image that is shown, in its pixels.
  let crop: ResamplerBox

  init(of variant: Variant, from image: ImageDescription) {
    stored = Size(width: max(1, image.width), height: max(1, image.height))
    let isTurned = image.orientation >= 5
    let upright = isTurned ? stored.turned : stored
    size = Self.size(of: variant, from: upright)
    scaled = isTurned ? size.turned : size
    let isCropped =
      variant.fit == .cover && variant.width != nil && variant.height != nil
      && scaled.width * stored.height != scaled.height * stored.width
    crop = Self.crop(
      of: stored, as: isCropped ? scaled : stored,
      at: Self.stored(variant.position, orientation: image.orientation))
  }

  /// Whether the variant shows the whole image.
  var isWhole: Bool {
    crop.right - crop.left == Double(stored.width)
      && crop.bottom - crop.top == Double(stored.height)
  }

  /// The longest side that may be requested. It keeps the arithmetic from overflowing.
  private static let longest = 1 << 24

  private static func size(of variant: Variant, from own: Size) -> Size {
    let width = variant.width.map { min(max(1, $0), longest) }
    let height = variant.height.map { min(max(1, $0), longest) }
    switch variant.fit {
    case .contain where variant.enlarge && (width != nil || height != nil):
      return fitted(own, width: width ?? longest << 6, height: height ?? longest << 6)
    case .contain, .scaleDown:
      return fitted(
        own, width: min(width ?? .max, own.width), height: min(height ?? .max, own.height))
    case .cover, .fill:
      switch (width, height) {
      case (nil, nil): return own
      case (let width?, nil): return resized(own, toWidth: width)
      case (nil, let height?): return resized(own.turned, toWidth: height).turned
      case (let width?, let height?): return Size(width: width, height: height)
      }
    }
  }

  private static func fitted(_ own: Size, width: Int, height: Int) -> Size {
    width * own.height <= height * own.width
      ? resized(own, toWidth: width) : resized(own.turned, toWidth: height).turned
  }

  /// A size of this width, with the proportions kept as closely as whole pixels allow.
  private static func resized(_ own: Size, toWidth width: Int) -> Size {
    Size(width: width, height: max(1, (2 * own.height * width + own.width) / (2 * own.width)))
  }

  /// Which shares of the cropped area lie to the left of and above the shown part, in the stored image. `position`
  /// refers to the upright image.
  private static func stored(
    _ position: Variant.Position, orientation: Int
  ) -> (x: Double, y: Double) {
    let (x, y) = (Double(position.x) / 100, Double(position.y) / 100)
    return switch orientation {
    case 2: (1 - x, y)
    case 3: (1 - x, 1 - y)
    case 4: (x, 1 - y)
    case 5: (y, x)
    case 6: (y, 1 - x)
    case 7: (1 - y, 1 - x)
    case 8: (1 - y, x)
    default: (x, y)
    }
  }

  /// The largest part that has the proportions of `shape`.
  private static func crop(
    of own: Size, as shape: Size, at position: (x: Double, y: Double)
  ) -> ResamplerBox {
    let (width, height) = (Double(own.width), Double(own.height))
    let across = min(width, height * Double(shape.width) / Double(shape.height))
    let down = min(height, width * Double(shape.height) / Double(shape.width))
    let (left, top) = ((width - across) * position.x, (height - down) * position.y)
    return ResamplerBox(
      left: left, top: top, right: min(left + across, width), bottom: min(top + down, height))
  }

  /// The least size at which a reader may decode: twice the size that the whole image is scaled to. A reader scales
  /// down less precisely than the resampler, which does the last factor of two.
  var leastRead: (width: UInt32, height: UInt32) {
    let across = Double(scaled.width * stored.width) / (crop.right - crop.left)
    let down = Double(scaled.height * stored.height) / (crop.bottom - crop.top)
    return (UInt32(min(2 * across, 4e9).rounded(.up)), UInt32(min(2 * down, 4e9).rounded(.up)))
  }

  /// How many times shorter a reader of this format may make the sides. Depends only on the variant and the image, so
  /// that reading it again gives the same pixels.
  func shrink(reading format: ImageFormat) -> Int {
    let factors: [Int] =
      switch format {
      case .jpeg: [8, 4, 2]
      // The factors that `webp_pixels.c` supports.
      case .webp: (1..<15).reversed().map { 1 << $0 }
      default: []
      }
    return factors.first { mayShrink(by: $0, reading: format) } ?? 1
  }

  private func mayShrink(by factor: Int, reading format: ImageFormat) -> Bool {
    let least = leastRead
    let sides = [(stored.width, least.width), (stored.height, least.height)]
    return sides.allSatisfy { side, least in
      format == .jpeg
        ? jpeg_may_shrink(UInt32(clamping: side), UInt32(clamping: factor), least)
        : (side + factor - 1) / factor >= Int(least)
    }
  }

  /// The scaling task for a plane that shows the whole image.
  /// - Parameter chroma: how many pixels of the variant one resulting sample covers, along each side.
  func task(
    of plane: SamplePlane, channels: Int, hasAlpha: Bool = false, chroma: Int = 1,
    waits: Bool = false
  ) -> RowResampler.Scaling {
    var box = box(in: plane)
    let (width, height) = (scaled.width, scaled.height)
    let out = Size(
      width: (width + chroma - 1) / chroma, height: (height + chroma - 1) / chroma)
    // The last sample may cover pixels beyond the variant.
    box.right += (box.right - box.left) * (Double(out.width * chroma) / Double(width) - 1)
    box.bottom += (box.bottom - box.top) * (Double(out.height * chroma) / Double(height) - 1)
    return RowResampler.Scaling(
      size: plane.size, box: box, scaled: out, channels: channels, hasAlpha: hasAlpha, waits: waits)
  }

  /// ``crop`` in the pixels of a plane, which may be a scaled-down image.
  func box(in plane: SamplePlane) -> ResamplerBox {
    let read = plane.size
    let across =
      plane.pixels.map { 1 / Double($0.width) } ?? Self.ratio(read.width, of: stored.width)
    let down =
      plane.pixels.map { 1 / Double($0.height) } ?? Self.ratio(read.height, of: stored.height)
    return ResamplerBox(
      left: crop.left * across, top: crop.top * down,
      right: min(crop.right * across, Double(read.width)),
      bottom: min(crop.bottom * down, Double(read.height)))
  }

  /// Half of an odd width is rounded up. Then the last pixel is only partly covered, and the image ends within it.
  private static func ratio(_ read: Int, of stored: Int) -> Double {
    for factor in [1, 2, 4, 8, 16, 32] where (stored + factor - 1) / factor == read {
      return 1 / Double(factor)
    }
    return Double(read) / Double(stored)
  }
}
