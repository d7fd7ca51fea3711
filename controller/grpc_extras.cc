// Of gRPC, the controller is a client with certificates of its own. What
// gRPC adds beyond that (xDS, credentials of clouds) comes into a program by
// this one function, which is here before the archive that has it is asked:
// two megabytes less, most of which would be in memory.
namespace grpc_core {

class CoreConfiguration {
 public:
  class Builder;
};

void RegisterExtraFilters(CoreConfiguration::Builder*) {}

}  // namespace grpc_core
