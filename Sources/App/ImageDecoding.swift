internal import Codec
internal import Engine
internal import Foundation
internal import Isolation
internal import Jobs
internal import Logging

/// The codec and renderer that `decode.isolation` selects: in decoder processes, or in this process.
struct ImageDecoding: Sendable {
  let codec: any ImageCodec
  let renderer: any ImageRenderer
  private let isolated: IsolatedCodec?

  init(_ configuration: Configuration, log: Logger) {
    guard configuration.decode.isolation == .process else {
      codec = StreamingCodec(formats: ImageFormat.decodedAnywhere)
      renderer = StreamingRenderer(of: ImageFormat.decodedAnywhere)
      isolated = nil
      return
    }
    let isolated = IsolatedCodec(configuration.isolation, log: log)
    (codec, renderer, self.isolated) = (isolated, isolated, isolated)
  }

  /// The formats that are accepted only if decoder processes are sandboxed.
  private static var refused: String {
    ImageFormat.needingIsolation.map(\.rawValue).sorted().joined(separator: ", ")
  }

  /// Starts a decoder process to test its sandbox, and logs the result. Operators must learn if the sandbox does not work.
  func logIsolation(to log: Logger) {
    guard let isolated else {
      log.warning(
        "images are decoded in this process: decode.isolation is none",
        metadata: ["refused": "\(Self.refused)"])
      return
    }
    switch isolated.probe() {
    case .success(let layers):
      let told: Logger.Metadata = [
        "seccomp": "\(layers.hasFilter)", "landlock": "\(layers.landlock ?? 0)",
      ]
      if layers.hasFilter {
        log.info("images are decoded in sandboxed processes", metadata: told)
      } else {
        log.error(
          "decoder processes have no system call filter: a codec bug could access everything this user can",
          metadata: told.merging(["refused": "\(Self.refused)"]) { $1 })
      }
    case .failure(let error):
      log.error(
        "no decoder process can be started: no image will be decoded",
        metadata: ["error": "\(error)"])
    }
  }
}

extension Configuration {
  fileprivate var isolation: IsolatedCodec.Configuration {
    var isolation = decoders
    // A rendering also needs memory for the image's bytes and for the variant's bytes.
    isolation.maxMemory = engine.limits.maxMemory + 2 * engine.maxBytes + (128 << 20)
    // Each image that is being received has its own decoder process, so there are more of them than decode threads.
    // Idle processes are reused, because a fork costs 1 ms of CPU time.
    isolation.maxIdle = idleDecoders
    return isolation
  }

  /// The number of decode threads: `decode.threads`, or one per core.
  ///
  /// With decoder processes it is one more than that. A thread waits while its decoder process computes, and the
  /// additional thread keeps every core busy between an answer and the next request.
  var decodeThreads: Int {
    guard decode.threads == 0 else { return decode.threads }
    let cores = ProcessInfo.processInfo.activeProcessorCount
    return decode.isolation == .process ? cores + 1 : cores
  }

  /// The maximum number of idle decoder processes that are kept for the next image.
  var idleDecoders: Int {
    decode.processes > 0
      ? decode.processes : min(32, 8 * ProcessInfo.processInfo.activeProcessorCount)
  }
}
