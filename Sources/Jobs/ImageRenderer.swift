/// Makes variants of images that were decoded whole before.
public protocol ImageRenderer: Sendable {
  /// The formats it writes.
  var formats: Set<OutputFormat> { get }

  /// The size of what comes out, in pixels, upright.
  func size(of variant: Variant, from image: ImageDescription) -> (width: Int, height: Int)

  /// How many times shorter the image's sides may be read for a variant. What is rendered together is read as the one
  /// that allows the least does, and comes out otherwise by that.
  func shrink(for variant: Variant, from image: ImageDescription) -> Int

  /// An upper bound of what rendering them together holds at once beside the image's bytes, in bytes.
  func memory(for variants: [Variant], from image: ImageDescription) -> Int

  /// Begins to render, all by one decode; nothing is computed yet.
  /// - Parameter bytes: all of the image's.
  func render(_ bytes: [UInt8], of image: ImageDescription, as variants: [Variant])
    -> any Rendering

  /// An upper bound of what drawing holds at once, in bytes.
  func memory(forDrawing variant: Variant) -> Int

  /// Begins to draw the built-in picture that stands in for an image, opaque, at the variant's width and height; its
  /// background is the ground's colour.
  func draw(_ placeholder: Placeholder, as variant: Variant) -> any Rendering
}

/// Variants of one picture being rendered, in slices: used by one task at a time, on a thread that may compute. Letting go of it
/// frees what it holds.
public protocol Rendering: AnyObject {
  /// Computes for some 10 ms (an encoder that can't be interrupted: as long as it takes).
  /// - Returns: the whole encoded pictures in the order of the variants, or why one can't be made; nil while there is more
  ///   to do.
  /// - Throws: where none can be made of these bytes.
  func step() throws(CodecError) -> [Result<[UInt8], CodecError>]?

  /// Lets others have a turn before the next step, and one that computes elsewhere some time: see ``ImageDecoder/pause()``.
  func pause() async
}

extension ImageRenderer {
  /// Nothing is left out.
  public func shrink(for variant: Variant, from image: ImageDescription) -> Int { 1 }

  /// Of one alone.
  public func memory(for variant: Variant, from image: ImageDescription) -> Int {
    memory(for: [variant], from: image)
  }

  /// Begins to render one alone.
  public func render(_ bytes: [UInt8], of image: ImageDescription, as variant: Variant)
    -> any Rendering
  {
    render(bytes, of: image, as: [variant])
  }
}

extension Rendering {
  /// A turn for each of the others.
  public func pause() async { await Task.yield() }

  /// ``step()`` where there is one alone.
  public func file() throws(CodecError) -> [UInt8]? { try step()?.first?.get() }
}
