import Glibc
package import Jobs

/// Everything that a decoder returned until its end.
package struct Decoding: Equatable, Sendable {
  /// The header; nil if decoding failed before.
  package private(set) var headers: [ImageHeader] = []
  /// The description, or the error at the end.
  package private(set) var result: Result<ImageDescription, CodecError>
  /// The number of calls of `step()`.
  package private(set) var steps = 0
  /// Variants made while decoding.
  package private(set) var variants: [[UInt8]?] = []
  /// The longest CPU time of a step.
  package private(set) var longestStep = Duration.zero

  /// Passes the bytes in pieces of this size and steps until the end.
  package init(
    _ bytes: [UInt8], by codec: some ImageCodec, pieces size: Int = .max,
    limits: DecodeLimits = DecodeLimits(), variants wanted: [VariantRequest] = []
  ) {
    let decoder = codec.makeDecoder(limits: limits, variants: wanted)
    result = .failure(.cutShort)
    var (rest, hasEnded) = (bytes[...], false)
    do throws(CodecError) {
      while true {
        steps += 1
        switch try timed(decoder) {
        case .header(let header): headers.append(header)
        case .hasMore: break
        case .again: (rest, hasEnded) = (bytes[...], false)
        case .finished(let description):
          result = .success(description)
          variants = decoder.variants
          return
        case .needsBytes:
          // After its end the decoder may not request more bytes.
          if hasEnded { return }
          decoder.append(Array(rest.prefix(size)))
          rest = rest.dropFirst(size)
          if rest.isEmpty {
            decoder.finishInput()
            hasEnded = true
          }
        }
      }
    } catch {
      result = .failure(error)
    }
  }

  /// Whether the other decoding had the same result, ignoring time.
  package static func == (one: Decoding, other: Decoding) -> Bool {
    one.headers == other.headers && one.result == other.result && one.variants == other.variants
  }

  private mutating func timed(_ decoder: any ImageDecoder) throws(CodecError) -> DecodeStep {
    let start = Self.computed
    defer { longestStep = max(longestStep, Self.computed - start) }
    return try decoder.step()
  }

  /// CPU time of this thread so far, so that other threads are not counted.
  private static var computed: Duration {
    var time = timespec()
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
  }

  /// The description without the placeholder, which other libraries do not compute.
  package var description: ImageDescription? {
    var description = try? result.get()
    description?.lqip = nil
    return description
  }

  /// The placeholder.
  package var lqip: LQIP? { try? result.get().lqip }

  /// The error, if there is no image.
  package var error: CodecError? {
    if case .failure(let error) = result { return error }
    return nil
  }

  /// Whether the bytes violate their format.
  package var isBroken: Bool {
    if case .broken = error { return true }
    return false
  }
}
