internal import Codec
public import Jobs
public import Logging

/// Decodes and renders in processes that can do nothing else: no file, no socket, no other process, none of the service's
/// memory, and no more time and memory than one picture may take.
///
/// What a picture is decoded by is the same code (`StreamingCodec`, `StreamingRenderer`), one slice a step: cancelling,
/// priorities and shares of memory are what they are without. A picture has its process for itself; bytes go in, and what comes
/// out is held against what was asked for. What crashes a decoder, or makes it lie, ends its own job.
public struct IsolatedCodec: Sendable {
  /// How decoders are run.
  public struct Configuration: Sendable {
    /// The program that calls ``DecoderServer/run()`` where its first argument is ``DecoderServer/argument``.
    public var program = "/proc/self/exe"
    /// What one may allocate, in bytes.
    public var maxMemory = 2 << 30
    /// CPU time that one picture may take, in whole seconds.
    public var maxTime = Duration.seconds(60)
    /// CPU time that a step may take of any picture, even before its size is known; of large ones, more.
    public var longestStep = Duration.milliseconds(100)
    /// How long one that owes an answer may do so without computing or waiting for a core.
    public var patience = Duration.seconds(5)
    /// After so many a process is replaced.
    public var picturesPerProcess = 100
    /// Bytes of pictures held in all for decoders that may have to take the place of another, beyond 256 KiB of each.
    public var mostRemembered = 32 << 20
    /// Processes kept for the next picture.
    public var mostIdle = 16

    /// Once so many have a picture, others begin with 64 kB of their bytes, or all: origins that drip take no process each.
    public var crowd = 128

    /// The defaults.
    public init() {}
  }

  /// What holds the decoders.
  public struct Layers: Sendable, Equatable {
    /// Their system calls are a few (seccomp).
    public var hasFilter: Bool
    /// The version of Landlock that denies them files and sockets; nil: this kernel has none, or not here.
    public var landlock: Int?
  }

  private let pool: DecoderPool
  private let arithmetic = StreamingRenderer()

  /// Starts the process that decoders come from; it gets ready meanwhile.
  public init(_ configuration: Configuration, log: Logger) {
    pool = DecoderPool(configuration, log: log)
    try? pool.start()
  }

  /// Tries for real: blocks until a decoder stands behind its limits.
  /// - Returns: what holds it; nil where none can be had, which `log` tells.
  public func probe() -> Result<Layers, ProbeError> {
    do throws(DecoderUnavailable) {
      return .success(try pool.layers())
    } catch {
      return .failure(ProbeError(description: error.description))
    }
  }

  /// Why there is no decoder.
  public struct ProbeError: Error, CustomStringConvertible {
    public let description: String
  }
}

extension IsolatedCodec: ImageCodec {
  public func makeDecoder(limits: DecodeLimits, variants: [VariantRequest]) -> any ImageDecoder {
    IsolatedDecoder(pool, limits: limits, variants: variants)
  }
}

extension IsolatedCodec: ImageRenderer {
  // No byte of an image is read for these: they are reckoned here.
  public var formats: Set<OutputFormat> { arithmetic.formats }

  public func size(of variant: Variant, from image: ImageDescription) -> (width: Int, height: Int) {
    arithmetic.size(of: variant, from: image)
  }

  public func shrink(for variant: Variant, from image: ImageDescription) -> Int {
    arithmetic.shrink(for: variant, from: image)
  }

  public func memory(for variants: [Variant], from image: ImageDescription) -> Int {
    arithmetic.memory(for: variants, from: image)
  }

  public func memory(forDrawing variant: Variant) -> Int { arithmetic.memory(forDrawing: variant) }

  public func draw(_ placeholder: Placeholder, as variant: Variant) -> any Rendering {
    arithmetic.draw(placeholder, as: variant)
  }

  public func render(
    _ bytes: [UInt8], of image: ImageDescription, as variants: [Variant]
  ) -> any Rendering {
    IsolatedRendering(
      pool, bytes, image, variants,
      mostBytes: arithmetic.memory(for: variants, from: image))
  }
}
