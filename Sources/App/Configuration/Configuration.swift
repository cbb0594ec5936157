/// All settings of the service, one struct per section. `Configuration.keys` lists every key by name.
///
/// A new value has the defaults. ``load(file:environment:flags:)`` applies a file, the environment and flags.
package struct Configuration: Sendable, Equatable {
  package var server = Server()
  package var auth = Auth()
  package var api = API()
  package var jobs = Jobs()
  package var fetch = Fetch()
  package var decode = Decode()
  package var cache = Cache()
  package var webhooks = Webhooks()
  package var destinations: [Destination] = []
  package var storage = Storage()
  package var sources = Sources()
  package var placeholders = Placeholders()
  package var view = View()
  package var cluster = Cluster()
  package var network = Network()
  package var log = Log()
  package var tracing = Tracing()

  package init() {}
}
