import Digests
import Testing

@Suite("SHA-256")
struct SHA256Tests {
  @Test(
    "SHA-256 matches the examples of FIPS 180-4",
    arguments: [
      ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
      ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
      (
        "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
      ),
    ])
  func knownValues(text: String, digest: String) {
    #expect(hex(SHA256.hash(data: text.utf8)) == digest)
    #expect(hex(SHA256.hash(data: Array(text.utf8))) == digest)
    var hash = SHA256()
    for byte in text.utf8 { hash.update(data: CollectionOfOne(byte)) }
    #expect(hex(hash.finalize()) == digest)
  }

  @Test("a copy of a hash continues independently, and bytes may follow a result")
  func copies() {
    var first = SHA256()
    first.update(data: "a".utf8)
    var second = first
    first.update(data: "bc".utf8)
    second.update(data: "x".utf8)
    #expect(first.finalize() == SHA256.hash(data: "abc".utf8))
    #expect(second.finalize() == SHA256.hash(data: "ax".utf8))
    first.update(data: "d".utf8)
    #expect(first.finalize() == SHA256.hash(data: "abcd".utf8))
  }
}

@Suite("HMAC with SHA-256")
struct HMACSHA256Tests {
  /// Test cases 1, 2 and 6 of RFC 4231, and the value for an empty key and text.
  @Test(
    "HMAC matches the test cases of RFC 4231",
    arguments: [
      (
        Array(repeating: 0x0b, count: 20), "Hi There",
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
      ),
      (
        Array("Jefe".utf8), "what do ya want for nothing?",
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
      ),
      (
        Array(repeating: 0xaa, count: 131),
        "Test Using Larger Than Block-Size Key - Hash Key First",
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
      ),
      ([], "", "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad"),
    ] as [([UInt8], String, String)])
  func knownValues(key: [UInt8], text: String, code: String) {
    #expect(hex(HMACSHA256.authenticationCode(for: text.utf8, key: key)) == code)
  }
}

private func hex(_ bytes: [UInt8]) -> String {
  bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
}
