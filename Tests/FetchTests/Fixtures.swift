import Fetch
import Jobs
import TestSupport

/// A fetcher that may connect to 127.0.0.1 on any port, but to no other special-purpose address.
func fetcher(
  _ change: (inout CurlFetcher.Configuration) -> Void = { _ in }
) throws -> CurlFetcher {
  var configuration = CurlFetcher.Configuration()
  configuration.policy.allowNetworks = [CIDR("127.0.0.1/32")!]
  configuration.policy.allowPorts = []
  configuration.lookupCacheTime = .zero
  // A busy machine may pause this process for seconds.
  configuration.connectTimeout = patience
  configuration.stallTimeout = patience
  change(&configuration)
  return try CurlFetcher(configuration)
}

/// - Parameter place: The URL that the conditions apply to; nil: the requested one.
func request(
  _ url: String, for owner: Owner? = nil, headers: [HeaderField] = [],
  conditions: [HeaderField] = [],
  at place: String? = nil, timeout: Duration = patience, maxBytes: Int = 1 << 25
) -> FetchRequest {
  FetchRequest(
    url: SourceURL(url)!, for: owner, headers: headers,
    conditions: [FetchConditions(url: SourceURL(place ?? url)!, fields: conditions)],
    timeout: timeout, maxBytes: maxBytes)
}

func readAll(_ body: any ImageBytes) async throws(FetchError) -> [UInt8] {
  var all: [UInt8] = []
  while let bytes = try await body.next() { all += bytes }
  return all
}

/// Returns the error of a fetch with its whole body; nil for success.
func failure(of fetcher: CurlFetcher, _ request: FetchRequest) async -> FetchError? {
  do throws(FetchError) {
    _ = try await readAll(fetcher.fetch(request).body)
    return nil
  } catch {
    return error
  }
}

/// Bytes whose values depend on their position.
func bytes(_ count: Int) -> [UInt8] {
  var all = Array(pattern.prefix(count))
  while all.count < count { all.append(contentsOf: all.prefix(count - all.count)) }
  return all
}

private let pattern = (0..<65_521).map { UInt8(truncatingIfNeeded: $0 &* 31 >> 3) }
