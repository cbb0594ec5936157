/// Makes variants of images that were decoded completely before.
package protocol ImageRenderer: Sendable {
  /// The formats that can be written.
  var formats: Set<OutputFormat> { get }

  /// The size of the variant in pixels, upright.
  func size(of variant: Variant, from image: ImageDescription) -> (width: Int, height: Int)

  /// The factor by which the image's sides can be reduced while it is read for a variant. Variants that are
  /// rendered together are read with the smallest factor among them, which changes their pixels slightly.
  func shrink(for variant: Variant, from image: ImageDescription) -> Int

  /// An upper bound for the memory of rendering the variants together, in bytes, without the image's own
  /// bytes.
  func memory(for variants: [Variant], from image: ImageDescription) -> Int

  /// Prepares to render all variants from one decode. Computes nothing yet.
  /// - Parameter bytes: The complete image.
  func render(_ bytes: [UInt8], of image: ImageDescription, as variants: [Variant])
    -> any Rendering
}

/// Renders variants of one image in short steps. Used by one task at a time, on a thread that may compute.
/// Releasing it frees its memory.
package protocol Rendering: AnyObject {
  /// Computes for about 10 ms, or longer if an encoder cannot be interrupted.
  /// - Returns: The encoded variants in order, or for each the reason why it cannot be made; nil while there
  ///   is more to do.
  /// - Throws: An error if the image's bytes allow no variant at all.
  func step() throws(CodecError) -> [Result<[UInt8], CodecError>]?

  /// Lets other tasks run, and gives a renderer in another process time to compute: see
  /// ``ImageDecoder/pause()``.
  func pause() async
}

extension ImageRenderer {
  /// The image is read at full size.
  package func shrink(for variant: Variant, from image: ImageDescription) -> Int { 1 }

  /// An upper bound for the memory of rendering one variant, in bytes.
  package func memory(for variant: Variant, from image: ImageDescription) -> Int {
    memory(for: [variant], from: image)
  }

  /// Prepares to render one variant.
  package func render(_ bytes: [UInt8], of image: ImageDescription, as variant: Variant)
    -> any Rendering
  {
    render(bytes, of: image, as: [variant])
  }
}

extension Rendering {
  /// Lets other tasks run.
  package func pause() async { await Task.yield() }

  /// Runs ``step()`` for a rendering of one variant, and returns its file; nil while there is more to do.
  package func file() throws(CodecError) -> [UInt8]? { try step()?.first?.get() }
}
