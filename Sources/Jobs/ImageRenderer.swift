/// Makes variants of images that were decoded whole before.
public protocol ImageRenderer: Sendable {
  /// The formats it writes.
  var formats: Set<OutputFormat> { get }

  /// The size of what comes out, in pixels, upright.
  func size(of variant: Variant, from image: ImageDescription) -> (width: Int, height: Int)

  /// An upper bound of what rendering holds at once beside the image's bytes, in bytes.
  func memory(for variant: Variant, from image: ImageDescription) -> Int

  /// Begins to render; nothing is computed yet.
  /// - Parameter bytes: all of the image's.
  func render(_ bytes: [UInt8], of image: ImageDescription, as variant: Variant) -> any Rendering

  /// An upper bound of what drawing holds at once, in bytes.
  func memory(forDrawing variant: Variant) -> Int

  /// Begins to draw the built-in picture that stands in for an image, opaque, at the variant's width and height; its
  /// background is the ground's colour.
  func draw(_ placeholder: Placeholder, as variant: Variant) -> any Rendering
}

/// One variant being rendered, in slices: used by one task at a time, on a thread that may compute. Letting go of it
/// frees what it holds.
public protocol Rendering: AnyObject {
  /// Computes for some 10 ms (an encoder that can't be interrupted: as long as it takes).
  /// - Returns: the whole encoded picture; nil while there is more to do.
  func step() throws(CodecError) -> [UInt8]?
}
