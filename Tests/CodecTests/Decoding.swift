import Codec
import Glibc
import Jobs
import Testing

/// What a decoder said on the way to its end.
struct Decoding {
  var headers: [ImageHeader] = []
  var result: Result<ImageDescription, CodecError>
  var steps = 0
  /// Those made on the way.
  var variants: [[UInt8]?] = []
  /// Of the thread's time.
  var longestStep = Duration.zero

  /// Gives the bytes in pieces of that size and steps until the end.
  init(
    _ bytes: [UInt8], pieces size: Int = .max, limits: DecodeLimits = DecodeLimits(),
    variants wanted: [Variant] = []
  ) {
    let decoder = StreamingCodec().makeDecoder(
      limits: limits, variants: wanted.map { VariantRequest($0) })
    result = .failure(.cutShort)
    var rest = bytes[...]
    do throws(CodecError) {
      while true {
        steps += 1
        switch try timed(decoder) {
        case .header(let header): headers.append(header)
        case .hasMore: break
        case .finished(let description):
          result = .success(description)
          variants = decoder.variants
          return
        case .needsBytes:
          decoder.append(Array(rest.prefix(size)))
          rest = rest.dropFirst(size)
          if rest.isEmpty { decoder.end() }
        }
      }
    } catch {
      result = .failure(error)
    }
  }

  private mutating func timed(_ decoder: any ImageDecoder) throws(CodecError) -> DecodeStep {
    let start = Self.computed
    defer { longestStep = max(longestStep, Self.computed - start) }
    return try decoder.step()
  }

  /// What this thread has computed so far: what others compute meanwhile is not the decoder's.
  private static var computed: Duration {
    var time = timespec()
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
  }

  /// All but the placeholder, which no other library tells.
  var description: ImageDescription? {
    var description = try? result.get()
    description?.lqip = nil
    return description
  }

  var lqip: LQIP? { try? result.get().lqip }

  var error: CodecError? {
    if case .failure(let error) = result { return error }
    return nil
  }

  var isBroken: Bool {
    if case .broken = error { return true }
    return false
  }
}
