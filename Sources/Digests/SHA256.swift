internal import CCrypto

// Digests: SHA-256 and HMAC-SHA-256.
//
// Input: bytes, in one piece or several. Output: 32 bytes. One file; every function runs on the caller's thread.

/// A SHA-256 (FIPS 180-4) of bytes that may be added in several pieces, computed by OpenSSL's libcrypto.
///
/// It is a value type: a copy and the original continue independently.
package struct SHA256: Sendable {
  private var state = State()

  /// A hash of zero bytes.
  package init() {}

  /// Appends bytes to the hashed data.
  package mutating func update(data: some Collection<UInt8>) {
    if !isKnownUniquelyReferenced(&state) { state = State(state) }
    data.withBytes(state.add)
  }

  /// The 32 bytes of the hash so far. More bytes may follow.
  package func finalize() -> [UInt8] { State(state).finish() }

  /// The 32 bytes of the hash of `data`.
  package static func hash(data: some Collection<UInt8>) -> [UInt8] {
    data.withBytes { bytes in
      State.result {
        EVP_Digest(bytes.baseAddress, bytes.count, $0, nil, Algorithm.sha256.method, nil)
      }
    }
  }
}

/// HMAC (RFC 2104) with SHA-256: authentication codes that only the holder of the key can compute.
package enum HMACSHA256 {
  /// The 32 bytes of the code for `data`.
  ///
  /// - Parameter key: of any length.
  package static func authenticationCode(
    for data: some Collection<UInt8>, key: some Collection<UInt8>
  ) -> [UInt8] {
    data.withBytes { data in
      key.withBytes { key in
        State.result {
          let code = HMAC(
            Algorithm.sha256.method, key.baseAddress ?? UnsafeRawPointer($0), Int32(key.count),
            data.bindMemory(to: UInt8.self).baseAddress, data.count, $0, nil)
          return code == nil ? 0 : 1
        }
      }
    }
  }
}

/// libcrypto's SHA-256, looked up once: each lookup by name takes a lock.
private struct Algorithm: @unchecked Sendable {  // libcrypto never changes it
  let method: OpaquePointer

  static let sha256 = Algorithm()

  private init() {
    guard let method = EVP_MD_fetch(nil, "SHA256", nil) else {
      fatalError("libcrypto has no SHA-256: its configuration disables it")
    }
    self.method = method
  }
}

/// libcrypto's state of one hash. Only a `SHA256` value with the single reference to it may change it.
private final class State: @unchecked Sendable {
  private let context: OpaquePointer

  init() {
    context = Self.allocated()
    Self.check(EVP_DigestInit_ex2(context, Algorithm.sha256.method, nil))
  }

  init(_ other: State) {
    context = Self.allocated()
    Self.check(EVP_MD_CTX_copy_ex(context, other.context))
  }

  deinit { EVP_MD_CTX_free(context) }

  func add(_ bytes: UnsafeRawBufferPointer) {
    Self.check(EVP_DigestUpdate(context, bytes.baseAddress, bytes.count))
  }

  func finish() -> [UInt8] { Self.result { EVP_DigestFinal_ex(context, $0, nil) } }

  /// The 32 bytes that `body` writes. It returns 1 for success, as libcrypto's functions do.
  static func result(_ body: (UnsafeMutablePointer<UInt8>) -> Int32) -> [UInt8] {
    Array(unsafeUninitializedCapacity: 32) { buffer, count in
      check(body(buffer.baseAddress!))  // it has room for 32
      count = 32
    }
  }

  private static func allocated() -> OpaquePointer {
    guard let context = EVP_MD_CTX_new() else { fatalError("no memory for a hash") }
    return context
  }

  /// With these arguments, libcrypto fails only if it has no memory.
  private static func check(_ result: Int32) {
    guard result == 1 else { fatalError("no memory for a hash") }
  }
}

extension Collection where Element == UInt8 {
  fileprivate func withBytes<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result {
    withContiguousStorageIfAvailable { body(UnsafeRawBufferPointer($0)) }
      ?? Array(self).withUnsafeBytes(body)
  }
}
