@testable import Isolation

/// Reads a reply that a compromised decoder might send.
func fuzzReply(_ bytes: [UInt8]) {
  var reader = MessageReader(bytes)
  guard let reply = try? DecoderReply(&reader) else { return }
  // A reply that was accepted must be equal when written again.
  var again = MessageReader(reply.message(number: 7))
  guard (try? again.integer()) == 7, let same = try? DecoderReply(&again) else {
    fatalError("failed expectation: an accepted reply can be read again")
  }
  expect(same.message(number: 7) == reply.message(number: 7), "the same reply")
}

/// Reads a request of the service.
func fuzzRequest(_ bytes: [UInt8]) {
  var reader = MessageReader(bytes)
  guard let request = try? DecoderRequest(&reader) else { return }
  var again = MessageReader(request.message(number: 7))
  guard (try? again.integer()) == 7, let same = try? DecoderRequest(&again) else {
    fatalError("failed expectation: an accepted request can be read again")
  }
  expect(same.message(number: 7) == request.message(number: 7), "the same request")
}
