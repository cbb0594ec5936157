import Jobs
import Testing

@testable import S3

/// The four examples of "Authenticating Requests: Using the Authorization Header (AWS Signature
/// Version 4)".
@Suite("Signature version 4")
struct SignatureTests {
  private static let signature = Signature(
    region: "us-east-1",
    credentials: S3Credentials(
      accessKey: "AKIAIOSFODNN7EXAMPLE", secretKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"))
  private static let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

  private func signed(
    _ method: String, _ path: String, _ query: [(name: String, value: String)] = [],
    _ fields: [(String, String)] = [], digest: String = empty
  ) -> Substring? {
    let all =
      [
        ("Host", "examplebucket.s3.amazonaws.com"), ("x-amz-content-sha256", digest),
        ("x-amz-date", "20130524T000000Z"),
      ] + fields
    let authorization = Self.signature.authorization(
      for: Signature.Request(
        method: method, path: path, query: query,
        fields: all.map { HeaderField(name: $0.0, value: $0.1) }, contentDigest: digest),
      at: "20130524T000000Z")
    return authorization.firstMatch(of: #/Signature=([0-9a-f]{64})$/#)?.1
  }

  @Test("a GET with a range has the documented signature")
  func range() {
    #expect(
      signed("GET", "/test.txt", [], [("Range", "bytes=0-9")])
        == "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41")
  }

  @Test("a PUT with an escaped key has the documented signature")
  func put() {
    #expect(
      signed(
        "PUT", "/" + Signature.encoded("test$file.text", keepsSlashes: true), [],
        [
          ("Date", "Fri, 24 May 2013 00:00:00 GMT"),
          ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ], digest: "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072")
        == "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd")
  }

  @Test("a query parameter without a value has the documented signature")
  func lifecycle() {
    #expect(
      signed("GET", "/", [("lifecycle", "")])
        == "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543")
  }

  @Test("a listing has the documented signature, whatever the order of its query")
  func list() {
    #expect(
      signed("GET", "/", [("prefix", "J"), ("max-keys", "2")])
        == "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7")
  }

  @Test("a date is formatted in UTC")
  func date() {
    #expect(Signature.date(Timestamp(milliseconds: 1_369_353_600_999)) == "20130524T000000Z")
  }

  @Test("all characters except unreserved ones are percent-encoded")
  func encoded() {
    #expect(Signature.encoded("aZ0-._~/ +ü*") == "aZ0-._~%2F%20%2B%C3%BC%2A")
    #expect(Signature.encoded("a/b c", keepsSlashes: true) == "a/b%20c")
  }
}
