internal import CCurl

/// libcurl easy handles that no transfer uses at the moment. Reusing a handle is cheaper than creating one.
/// Only the loop's thread uses it.
///
/// A reused handle keeps nothing of its last transfer: all options are reset, and TLS sessions are never
/// cached. An origin therefore cannot use a TLS session to link two requests.
final class HandlePool {
  /// The most handles kept, about 6 KB each.
  private static let capacity = 64

  private var handles: [UnsafeMutableRawPointer] = []

  deinit { for handle in handles { curl_easy_cleanup(handle) } }

  func makeHandle() -> UnsafeMutableRawPointer? { handles.popLast() ?? curl_easy_init() }

  /// - Parameter handle: A handle that has been removed from the multi handle.
  func recycle(_ handle: UnsafeMutableRawPointer) {
    guard handles.count < Self.capacity else { return curl_easy_cleanup(handle) }
    // `curl_easy_reset` does not reset the share.
    CCurl_setPointer(handle, CURLOPT_SHARE, nil)
    curl_easy_reset(handle)
    handles.append(handle)
  }
}
