"""OpenShell's own Python SDK, unmodified, against our gateway; and its descriptors against ours."""
import importlib
import pkgutil
import sys

import grpc
import openshell
import openshell._proto as protos
from google.protobuf import descriptor_pb2
from openshell import SandboxClient
from openshell._proto import openshell_pb2, sandbox_pb2

# Fields that are ours; their numbers are far from OpenShell's, and its clients do not read them.
OURS = {("openshell.v1.ExecSandboxExit", 1001), ("openshell.v1.ExecSandboxExit", 1002)}


def messages(file, prefix, found):
    for message in file.message_type if hasattr(file, "message_type") else file.nested_type:
        name = f"{prefix}.{message.name}"
        found[name] = {f.number: (f.name, f.type, f.label, f.type_name, f.HasField("oneof_index")) for f in message.field}
        messages(message, name, found)


def compare(path):
    theirs, enums, methods = {}, {}, {}
    ours, our_enums, our_methods = {}, {}, {}
    wheel = []
    for module in pkgutil.iter_modules(protos.__path__):
        if module.name.endswith("_pb2"):
            file = descriptor_pb2.FileDescriptorProto()
            importlib.import_module(f"openshell._proto.{module.name}").DESCRIPTOR.CopyToProto(file)
            wheel.append(file)
    with open(path, "rb") as text:
        mine = descriptor_pb2.FileDescriptorSet.FromString(text.read()).file
    for files, into, values, calls in [(wheel, theirs, enums, methods), (mine, ours, our_enums, our_methods)]:
        for file in files:
            messages(file, file.package, into)
            values.update({f"{file.package}.{e.name}": {v.number: v.name for v in e.value} for e in file.enum_type})
            for service in file.service:
                for m in service.method:
                    calls[f"{file.package}.{service.name}.{m.name}"] = (m.input_type, m.output_type, m.client_streaming, m.server_streaming)
    checked = 0
    wrong = []
    for name, fields in ours.items():
        if not name.startswith("openshell."):
            continue
        for number, field in fields.items():
            if (name, number) in OURS:
                continue
            checked += 1
            if theirs.get(name, {}).get(number) != field:
                wrong.append(f"{name}.{number}: {theirs.get(name, {}).get(number)} is not {field}")
    for mine, their in [(our_enums, enums), (our_methods, methods)]:
        for name, value in mine.items():
            if name.startswith("openshell."):
                checked += 1
                if their.get(name) != value:
                    wrong.append(f"{name}: {their.get(name)} is not {value}")
    assert not wrong, "\n".join(wrong)
    assert checked > 150, checked


def lifecycle(client, name):
    assert client.health().version == "0.1.5", client.health()
    sandbox = client.create(name=name, workspace="default")
    assert sandbox.id and sandbox.name == name, sandbox
    client.wait_ready(name, workspace="default", timeout_seconds=30)
    result = client.exec(name, ["cat"], stdin=b"given", workspace="default")
    assert (result.exit_code, result.stdout) == (0, "given"), result
    result = client.exec(name, ["sh", "-c", "echo $A; pwd; echo err >&2; exit 3"], env={"A": "b c"}, workdir="/tmp", workspace="default")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "b c\n/tmp\n", "err\n"), result
    result = client.exec(name, ["sleep", "600"], timeout_seconds=1, workspace="default")
    assert result.exit_code == 124, result
    result = client.exec(name, ["sh", "-c", "kill -9 $$"], workspace="default")
    assert result.exit_code == 137, result
    assert name in [s.name for s in client.list_all(workspace="default")], name
    assert client.get(name, workspace="default").id == sandbox.id
    client.delete(name, workspace="default")
    client.wait_deleted(name, workspace="default")
    try:
        client.get(name, workspace="default")
        raise AssertionError("the sandbox is still there")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND, error


# Bash that asks alone: a second program that held the connection would make it nobody's.
ASK = """ask() { exec 3<>/dev/tcp/$1/$2 || return; printf "$3" >&3; while IFS= read -r line <&3 || [ -n "$line" ]; do
printf "%s\\n" "$line"; done; exec 3>&-; }; """


def asked(client, name, host, port, request):
    script = f"{ASK} ask {host} {port} '{request}'"
    result = client.exec(name, ["/usr/bin/bash", "-c", script], timeout_seconds=30, workspace="default")
    return result.stdout + result.stderr


def created(client, name, binary, port):
    endpoint = sandbox_pb2.NetworkEndpoint(host="127.0.0.1", port=int(port), protocol="tcp")
    rule = sandbox_pb2.NetworkPolicyRule(name="test", endpoints=[endpoint], binaries=[sandbox_pb2.NetworkBinary(path=binary)])
    policy = sandbox_pb2.SandboxPolicy(version=1, network_policies={"test": rule})
    client.create(name=name, workspace="default", spec=openshell_pb2.SandboxSpec(policy=policy))
    client.wait_ready(name, workspace="default", timeout_seconds=30)


def reach(client, port, other):
    created(client, "reaches", "/usr/bin/bash", port)
    created(client, "not-listed", "/usr/bin/git", port)
    plain = "GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n"
    tunnel = "CONNECT {0} HTTP/1.1\\r\\nHost: {0}\\r\\n\\r\\n"
    assert asked(client, "reaches", "127.0.0.1", port, plain).endswith("\nhello\n")
    assert asked(client, "reaches", "127.0.0.1", 3128, tunnel.format(f"127.0.0.1:{port}") + plain).endswith("\nhello\n")
    for sandbox, target, reason in [
        ("reaches", f"127.0.0.1:{other}", "port-not-listed"),
        ("reaches", "github.com:443", "host-not-listed"),
        ("not-listed", f"127.0.0.1:{port}", "binary-not-listed"),
    ]:
        said = asked(client, sandbox, "127.0.0.1", 3128, tunnel.format(target))
        assert said.startswith("HTTP/1.1 403 ") and f'"reason":"{reason}"' in said, said
    assert "hello" not in asked(client, "not-listed", "127.0.0.1", port, plain)
    assert "refused" in asked(client, "reaches", "127.0.0.1", other, plain)
    client.create(name="shut", workspace="default")
    client.wait_ready("shut", workspace="default", timeout_seconds=30)
    assert "refused" in asked(client, "shut", "127.0.0.1", 3128, plain)
    rule = sandbox_pb2.L7Rule(allow=sandbox_pb2.L7Allow(method="GET", path="/ok"))
    endpoint = sandbox_pb2.NetworkEndpoint(host="a.example", port=443, protocol="rest", rules=[rule])
    policy = sandbox_pb2.SandboxPolicy(version=1, network_policies={"r": sandbox_pb2.NetworkPolicyRule(endpoints=[endpoint])})
    try:
        client.create(name="ruled", workspace="default", spec=openshell_pb2.SandboxSpec(policy=policy))
        raise AssertionError("rules that nothing enforces were taken")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.FAILED_PRECONDITION and "rules" in error.details(), error
    for name in ["reaches", "not-listed", "shut"]:
        client.delete(name, workspace="default")
        client.wait_deleted(name, workspace="default")


def main(unix, tcp, token, descriptors, port, other):
    compare(descriptors)
    lifecycle(SandboxClient(f"unix:{unix}"), "over-unix")
    lifecycle(SandboxClient(tcp, bearer_token=token), "over-tcp")
    reach(SandboxClient(tcp, bearer_token=token), port, other)
    for wrong in [None, "guess"]:
        client = SandboxClient(tcp, bearer_token=wrong)
        assert client.health().version
        try:
            client.list_all(workspace="default")
            raise AssertionError("a caller without the token was let in")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAUTHENTICATED, error
    print("fine")


main(*sys.argv[1:])
