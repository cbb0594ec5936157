internal import Codec
internal import Foundation
internal import Isolation
internal import Jobs
internal import Logging

/// Where images are decoded and rendered, as `decode.isolation` says.
struct Decoding: Sendable {
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

  /// The formats that are taken only where decoders are held.
  private static var refused: String {
    ImageFormat.needingIsolation.map(\.rawValue).sorted().joined(separator: ", ")
  }

  /// Tries what holds the decoders, and says it: an operator who relies on it has to hear where it doesn't hold.
  func tell(to log: Logger) {
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
        log.info("images are decoded in processes of their own", metadata: told)
      } else {
        log.error(
          "decoder processes can't be kept from system calls: a codec's bug could reach what this user can",
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
    var isolation = IsolatedCodec.Configuration()
    // A rendering has the image's bytes too, and a file in the making.
    isolation.maxMemory = decode.maxMemory + 2 * fetch.maxBytes + (128 << 20)
    isolation.maxTime = decode.maxTime
    // More pictures arrive at once than are computed at once, and each has one: to fork it anew takes a millisecond of a core.
    isolation.mostIdle = idleDecoders
    return isolation
  }

  /// While a decoder computes, a thread waits for it: with one more, no core idles from an answer to the next request.
  var decodeThreads: Int {
    guard decode.threads == 0 else { return decode.threads }
    let cores = ProcessInfo.processInfo.activeProcessorCount
    return decode.isolation == .process ? cores + 1 : cores
  }

  /// Decoder processes that are kept for the next image.
  var idleDecoders: Int {
    decode.processes > 0
      ? decode.processes : min(32, 8 * ProcessInfo.processInfo.activeProcessorCount)
  }
}
