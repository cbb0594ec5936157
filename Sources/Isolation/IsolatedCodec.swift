internal import Codec
package import Jobs
package import Logging
package import Settings

/// Decodes and renders images in sandboxed decoder processes. They have no access to files, sockets, other processes
/// or the service's memory, and may use only the time and memory of one image.
///
/// Input: an image's bytes and the requested variants. Output: the same headers, descriptions, previews and files as
/// from `StreamingCodec` and `StreamingRenderer`, which run in the decoder process. One step here is one slice there.
/// So cancellation, priorities and memory limits work as without isolation. One process works on one image at a time.
/// Every reply is checked against the request. If an image makes its decoder crash or violate the protocol, only its
/// own job fails.
///
/// Read the files in this order: `IsolatedCodec`, `IsolatedDecoder` and `IsolatedRendering`, `DecoderSession`,
/// `DecoderPool`, `DecoderProcess`, `DecoderZygote`; then `DecoderServer`, which is the other side; then the messages
/// (`DecoderRequest`, `DecoderReply`).
///
/// A step blocks its thread for at most about 10 ms. It runs on the threads that the engine uses for decoding.
/// `DecoderPool` and `DecoderZygote` may be used from any thread; each has one lock.
package struct IsolatedCodec: Sendable {
  /// The settings of the decoder processes.
  package struct Configuration: Sendable {
    /// The program that calls ``DecoderServer/run()`` if its first argument is ``DecoderServer/argument``.
    package var program = "/proc/self/exe"
    /// How many bytes one decoder may allocate.
    package var maxMemory = 2 << 30
    /// CPU time that one image may take, in whole seconds.
    package var maxTime = Duration.seconds(60)
    /// CPU time that a step may take for any image, even before its size is known. Large images may take more.
    package var longestStep = Duration.milliseconds(100)
    /// How long a decoder may owe a reply without computing or waiting for a core.
    package var replyTimeout = Duration.seconds(5)
    /// A process is replaced after this many images.
    package var imagesPerProcess = 100
    /// How many idle processes are kept for the next images.
    package var maxIdle = 16

    /// If this many decoders are in use, further images start only once 64 KiB, or all, of their bytes have arrived.
    /// So slow origins do not occupy a process each.
    package var busyThreshold = 128

    /// The key that sets one of them.
    package static let settings: [Setting<Configuration>] = [
      Setting(
        "decode.max_time", \.maxTime, .duration(.seconds(1) ... .hours(1)),
        "Maximum computing time of one image in a decoder process, in whole seconds.")
    ]

    /// The defaults.
    package init() {}
  }

  /// The sandbox layers of the decoders.
  package struct SandboxLayers: Sendable, Equatable {
    /// Whether seccomp limits their system calls.
    package var hasFilter: Bool
    /// The version of Landlock that denies access to files and sockets; nil if it is not available here.
    package var landlock: Int?
  }

  private let pool: DecoderPool
  private let arithmetic = StreamingRenderer()

  /// Starts the process that forks decoders, without waiting until it is ready.
  package init(_ configuration: Configuration, log: Logger) {
    pool = DecoderPool(configuration, log: log)
    try? pool.start()
  }

  /// Starts a real decoder and blocks until it has entered its sandbox.
  /// - Returns: its sandbox layers, or the reason why no decoder is available.
  package func probe() -> Result<SandboxLayers, ProbeError> {
    do throws(DecoderUnavailable) {
      return .success(try pool.layers())
    } catch {
      return .failure(ProbeError(description: error.description))
    }
  }

  /// Why no decoder is available.
  package struct ProbeError: Error, CustomStringConvertible {
    package let description: String
  }
}

extension IsolatedCodec: ImageCodec {
  package func makeDecoder(limits: DecodeLimits, variants: [VariantRequest]) -> any ImageDecoder {
    IsolatedDecoder(pool, limits: limits, variants: variants)
  }
}

extension IsolatedCodec: ImageRenderer {
  // These functions do not read an image's bytes, so they run in this process.
  package var formats: Set<OutputFormat> { arithmetic.formats }

  package func size(of variant: Variant, from image: ImageDescription) -> (width: Int, height: Int)
  {
    arithmetic.size(of: variant, from: image)
  }

  package func shrink(for variant: Variant, from image: ImageDescription) -> Int {
    arithmetic.shrink(for: variant, from: image)
  }

  package func memory(for variants: [Variant], from image: ImageDescription) -> Int {
    arithmetic.memory(for: variants, from: image)
  }

  package func render(
    _ bytes: [UInt8], of image: ImageDescription, as variants: [Variant]
  ) -> any Rendering {
    IsolatedRendering(
      pool, bytes, image, variants,
      mostBytes: arithmetic.memory(for: variants, from: image))
  }
}
